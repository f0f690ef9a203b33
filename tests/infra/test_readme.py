"""The commands of the deployment's README exist, with the options that it gives them."""

import re
import shlex
import subprocess

import click
import pytest

from tally.cli import main
from tests.infra.terraform import ROOT, SOURCE

README = (SOURCE / "README.md").read_text()
TALLY = re.findall(r"^    tally (.+)$", README, re.MULTILINE) + re.findall(r"`tally ([^`…]+)`", README)
MAKE = re.findall(r"^    (?:PROJECT=\S+ )?make ([^#\n]+?)(?: &&.*)?$", README, re.MULTILINE)


@pytest.mark.parametrize("line", sorted(set(TALLY)))
def test_a_tally_command_exists_with_its_options(line: str) -> None:
    command: click.Command = main
    words = shlex.split(line)
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"no command {words[0]!r}"
        command, words = found, words[1:]
    if words:
        command.make_context("tally", words)


@pytest.mark.parametrize("line", sorted(set(MAKE)))
def test_a_make_target_exists(line: str) -> None:
    done = subprocess.run(["make", "-n", *shlex.split(line)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_has_commands() -> None:
    assert len(TALLY) >= 6
    assert len(MAKE) >= 4
