"""A vote's way to its certificate as a user goes it: server, worker and the commands, each a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.process import guarded

TALLY = str(Path(sys.executable).with_name("tally"))
# The command, but for how long its subscription must have been empty: on this one nobody else ever held a message.
SOON_EMPTY = "from tally.cli import main; from tally.votes import worker; worker.EMPTY_FOR = 3.0; main()"
Run = Callable[..., str]


@pytest.fixture
def tally(tmp_path: Path) -> Run:
    """Run a command in a state of the test's own; return its stdout."""
    environ = {**os.environ, "TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path / "state")}

    def run(*arguments: str, exit_code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-c", SOON_EMPTY, *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == exit_code, done.stderr
        return done.stdout

    return run


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    environ = {**os.environ, "TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path / "state")}
    server = subprocess.Popen(
        guarded([TALLY, "serve", "--port", "0"]),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
        assert server.stdout is not None
        server.stdout.close()


def test_a_ballot_has_a_receipt_under_the_root_that_anyone_recomputes(tally: Run, url: str, tmp_path: Path) -> None:
    tally("poll", "create", "lunch", "soup", "salad", "--url", url)
    voted = [
        json.loads(tally("vote", "lunch", option, "--voter", voter, "--url", url, "--json"))
        for voter, option in (("ann", "soup"), ("bob", "salad"), ("cat", "soup"), ("ann", "salad"))
    ]
    assert voted[0]["ballot"] == voted[3]["ballot"]
    tally("worker", "--until-empty", "--port", "0")
    export = tmp_path / "lunch.csv"
    made = json.loads(tally("recount", "lunch", "--json", "--export", str(export)))
    assert made["counts"] == {"soup": 2, "salad": 1}
    assert json.loads(tally("verify", str(export), "--json")) == made
    receipt = tmp_path / "receipt.json"
    receipt.write_text(tally("receipt", "lunch", "--ballot", voted[1]["ballot"]))
    assert voted[1]["ballot"] in tally("receipt", "--check", str(receipt), "--root", made["root"])
    tally("receipt", "--check", str(receipt), "--root", "0" * 64, exit_code=1)
    export.write_text(export.read_text().replace("salad", "soup"))
    tally("verify", str(export), exit_code=1)
