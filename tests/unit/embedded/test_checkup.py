import os
import signal
import sqlite3
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.process import guarded
from tally import embedded
from tally.config import Settings
from tally.embedded import checkup
from tally.embedded.turn import holders
from tally.finding import Finding

Usage = namedtuple("Usage", "total used free")


async def _made(settings: Settings) -> Path:
    backend = await embedded.open(settings)
    await backend.prepare()
    await backend.close()
    return settings.state / "tally.sqlite3"


def _levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.level for finding in findings}


async def test_a_file_that_is_not_there_is_ok_and_is_not_made(settings: Settings) -> None:
    assert _levels(await checkup.examine(settings)) == {"file": "ok"}
    assert not checkup.has_store(settings)
    assert not list(settings.state.iterdir())


async def test_a_sound_file_tells_its_size_and_backlog(settings: Settings) -> None:
    await _made(settings)
    findings = await checkup.examine(settings)
    assert _levels(findings)["file"] == _levels(findings)["subscription"] == "ok"
    assert "0 messages wait" in findings[1].says
    assert checkup.has_store(settings)


async def test_a_damaged_a_foreign_and_a_newer_file_are_wrong(settings: Settings) -> None:
    file = await _made(settings)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    (newer,) = await checkup.examine(settings)
    assert newer.level == "wrong" and "newer Tally" in newer.says
    for neighbour in settings.state.iterdir():
        neighbour.unlink()
    file.write_bytes(b"no SQLite at all, but long enough to be looked at" * 100)
    (foreign,) = await checkup.examine(settings)
    assert foreign.level == "wrong" and "no SQLite file" in foreign.says


async def test_a_subscription_of_another_topic_is_wrong(settings: Settings) -> None:
    await _made(settings)
    findings = await checkup.examine(replace(settings, topic="ballots"))
    wrong = [finding for finding in findings if finding.level == "wrong"]
    assert [finding.mend for finding in wrong] == ["export TALLY_TOPIC=votes"]


async def test_a_topic_whose_subscription_is_missing_is_wrong_and_one_not_made_yet_is_not(settings: Settings) -> None:
    two = replace(settings, streams=2)
    await _made(settings)
    assert _levels(await checkup.examine(two))["subscription"] == "ok"
    connection = sqlite3.connect(settings.state / "tally.sqlite3")
    with connection:
        connection.execute("INSERT INTO topic (name) VALUES ('votes-1')")
    connection.close()
    (wrong,) = [finding for finding in await checkup.examine(two) if finding.level == "wrong"]
    assert "what is published to votes-1 is lost" in wrong.says
    await _made(two)
    assert "wrong" not in _levels(await checkup.examine(two)).values()


@pytest.mark.parametrize(("free", "level"), [(10**8 - 1, "wrong"), (10**8, "note"), (10**9, "ok")])
async def test_a_disk_that_fills_up_is_told_in_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    await _made(settings)
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(10**12, 0, free))
    assert _levels(await checkup.examine(settings))["disk"] == level


@contextmanager
def _holder(lock: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process that holds a lock until the block is left."""
    hold = "import fcntl, sys; it = open(sys.argv[1]); fcntl.flock(it, fcntl.LOCK_EX); print(flush=True); input()"
    command = guarded([sys.executable, "-c", hold, lock])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield process
        process.kill()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who holds a lock")
@pytest.mark.parametrize("lock", ["queue", "turn"])
async def test_a_stopped_process_that_keeps_others_from_writing_is_named(settings: Settings, lock: str) -> None:
    file = await _made(settings)
    with _holder(f"{file}-{lock}") as process:
        assert holders(file) == {process.pid}
        assert "turn" not in _levels(await checkup.examine(settings))
        _stop(process)
        (stopped,) = [finding for finding in await checkup.examine(settings) if finding.check == "turn"]
        assert (stopped.level, stopped.mend) == ("wrong", f"kill -CONT {process.pid}")
    assert "turn" not in _levels(await checkup.examine(settings))
