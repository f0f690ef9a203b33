"""The configuration by itself: form, validity, its own tests, and that a second apply changes nothing."""

import json
import re
from pathlib import Path

import pytest

from tests.infra.terraform import SOURCE, Terraform, arguments, variables


def test_every_file_is_formatted(tf: Terraform) -> None:
    done = tf.run(SOURCE, "fmt", "-check", "-recursive", "-no-color")
    assert done.returncode == 0, done.stdout


def test_the_configuration_is_valid(tf: Terraform, folder: Path) -> None:
    done = tf.run(folder, "validate", "-json")
    assert json.loads(done.stdout)["diagnostics"] == []


def test_its_own_tests_pass(tf: Terraform, folder: Path) -> None:
    done = tf.run(folder, "test", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", done.stdout)


def test_versions_are_bounded() -> None:
    """The stand-in skips the provider's constraint, so it is read here."""
    text = (SOURCE / "versions.tf").read_text()
    assert 'required_version = ">= 1.9"' in text
    assert 'version = ">= 8.0, < 9.0"' in text


def test_variables_are_typed_described_and_in_order() -> None:
    text = (SOURCE / "variables.tf").read_text()
    blocks = re.findall(r'^variable "(\w+)" \{$(.*?)^\}$', text, re.MULTILINE | re.DOTALL)
    names = [name for name, _ in blocks]
    assert names == sorted(names)
    for name, body in blocks:
        assert re.search(r"^  description = ", body, re.MULTILINE), f"{name} has no description"
        assert re.search(r"^  type += ", body, re.MULTILINE), f"{name} has no type"


def test_a_second_apply_changes_nothing_and_destroy_empties_the_state(tf: Terraform) -> None:
    if tf.real:
        pytest.skip("applies only against the stand-in")
    folder = tf.copy("apply")
    values = arguments(variables(example="smallest", deletion_protection=False))
    applied = tf.run(folder, "apply", "-no-color", "-auto-approve", *values)
    assert applied.returncode == 0, applied.stderr
    again = tf.run(folder, "plan", "-no-color", "-detailed-exitcode", *values)
    assert again.returncode == 0, again.stdout + again.stderr
    destroyed = tf.run(folder, "destroy", "-no-color", "-auto-approve", *values)
    assert destroyed.returncode == 0, destroyed.stderr
    assert json.loads((folder / "terraform.tfstate").read_text())["resources"] == []
