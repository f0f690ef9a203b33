"""tests/vectors.json, made again by Node from the descriptions alone."""

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

VECTORS: dict[str, Any] = json.loads(Path("tests/vectors.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def differing(script: str, vectors: dict[str, Any]) -> list[str]:
    """Return the notes of the vectors that come out otherwise in Node."""
    command = ["node", str(Path(__file__).with_name(script))]
    made = subprocess.run(command, input=json.dumps(vectors).encode(), capture_output=True, check=True, timeout=60)
    notes: list[str] = json.loads(made.stdout)
    return notes


@pytest.mark.parametrize("script", ["ballot.mjs", "ledger.mjs"])
def test_what_node_makes_is_ours(script: str) -> None:
    assert differing(script, VECTORS) == []


@pytest.mark.parametrize(
    ("script", "kind", "field"),
    [
        ("ballot.mjs", "ballots", "voter"),
        ("ledger.mjs", "messages", "data"),
        ("ledger.mjs", "records", "packed"),
        ("ledger.mjs", "certificates", "sha256"),
        ("ledger.mjs", "certificates", "root"),
    ],
)
def test_the_comparison_sees_a_difference(script: str, kind: str, field: str) -> None:
    vectors = copy.deepcopy(VECTORS)
    vectors[kind][0][field] += "x"
    assert differing(script, vectors) == [vectors[kind][0]["note"]]
