import json
import shutil
import subprocess
from pathlib import Path

import pytest

VECTORS = Path("tests/vectors.json")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_ballot_ids_made_by_node_are_ours() -> None:
    script = Path(__file__).with_name("ballot.mjs")
    made = subprocess.run(
        ["node", str(script)], input=VECTORS.read_bytes(), capture_output=True, check=True, timeout=60
    )
    assert json.loads(made.stdout) == []


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_comparison_sees_a_difference() -> None:
    script = Path(__file__).with_name("ballot.mjs")
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    vectors["ballots"][0]["voter"] += "x"
    made = subprocess.run(
        ["node", str(script)], input=json.dumps(vectors).encode(), capture_output=True, check=True, timeout=60
    )
    assert json.loads(made.stdout) == [vectors["ballots"][0]["note"]]
