"""Servers that fork: a child's calls land or raise, and never hang or vanish."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tally import config, gcp
from tally.ports import Query
from tests.conftest import Hosts

SCRIPT = Path(__file__).with_name("forking.py")
COMMITS = 20


@pytest.mark.parametrize("parent", ["unused", "closed"])
async def test_children_of_a_fork_write_what_they_say(emulators: Hosts, parent: str) -> None:
    environ = {**emulators("firestore-mode"), "TALLY_PROJECT": f"fork-{uuid.uuid4().hex[:12]}"}
    assert fork(environ, parent) == ["done"] * 3
    backend = await gcp.open(config.load(environ))
    page = await backend.store.query(Query(kind="Child", keys_only=True))
    await backend.close()
    assert len(page.entities) == 3 * COMMITS


def test_a_child_of_a_parent_in_mid_use_is_refused_and_does_not_hang(emulators: Hosts) -> None:
    environ = {**emulators("firestore-mode"), "TALLY_PROJECT": f"fork-{uuid.uuid4().hex[:12]}"}
    assert fork(environ, "open") == ["refused: this process was forked"] * 3


def fork(environ: dict[str, str], parent: str) -> list[str]:
    """Run a server with three children in a process of its own; return what each child said."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), parent, str(COMMITS)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return sorted(done.stdout.splitlines())
