import re
from pathlib import Path

import pytest

from emulator.cloud_tasks.__main__ import main
from emulator.cloud_tasks.faults import KINDS

ROOT = Path(__file__).parents[4]
README = (ROOT / "emulator" / "cloud_tasks" / "README.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", README)))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_test_that_the_fidelity_table_names_exists(file: str, test: str) -> None:
    folder = ROOT / "tests" / ("" if file.startswith("unit/") else "integration/cloud_tasks")
    assert f"def {test}(" in (folder / file).read_text()


def test_every_option_and_fault_is_explained() -> None:
    options = [name for parameter in main.params for name in (*parameter.opts, *parameter.secondary_opts)]
    defaults = {"--redirects", "--no-ramp"}  # explained as their opposites
    assert [name for name in (*options, *KINDS) if f"`{name}" not in README and name not in defaults] == []
