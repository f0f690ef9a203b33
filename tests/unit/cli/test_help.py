from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from tally.cli import main


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = list(_commands(main))


@pytest.mark.parametrize(
    ("path", "command"), COMMANDS, ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_each_command_explains_itself_by_an_example(path: tuple[str, ...], command: click.Command) -> None:
    shown = CliRunner().invoke(main, [*path, "--help"])
    assert shown.exit_code == 0
    assert f"tally {' '.join(path)}" in shown.output.partition("Example")[2]
