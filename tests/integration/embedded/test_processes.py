"""Several processes on one file: what a SIGKILL leaves, and whose turn it is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from emulator.process import guarded
from tally import config, embedded
from tally.config import Durability, Settings
from tally.embedded.backend import SqliteBackend
from tally.ports import Query


@contextmanager
def _child(settings: Settings, role: str, name: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {
        "TALLY_BACKEND": "embedded",
        "TALLY_STATE": str(settings.state),
        "TALLY_DURABILITY": settings.durability,
    }
    command = [sys.executable, "-m", "tests.integration.embedded.child", role, name, *options]
    process = subprocess.Popen(guarded(command), env=environment, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        _output(process).close()


def _output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def _kill_after(process: subprocess.Popen[bytes], lines: int) -> list[str]:
    """Read so many lines, kill, and return all lines that were printed."""
    said = [_output(process).readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    said += _output(process).readlines()
    assert len(said) >= lines and all(said)
    return [line.decode().strip() for line in said]


def _settings(folder: Path, durability: str = "power-loss") -> Settings:
    return config.load({"TALLY_BACKEND": "embedded", "TALLY_STATE": str(folder), "TALLY_DURABILITY": durability})


async def _pull_all(backend: SqliteBackend, subscription: str) -> list[str]:
    puller = backend.puller(subscription)
    data: list[str] = []
    while got := await puller.pull(1_000):
        data += [message.data.decode() for message in got]
        await puller.acknowledge([message.ack_id for message in got])
    return data


@pytest.mark.parametrize("durability", ["power-loss", "process-crash"])
async def test_a_killed_publisher_leaves_every_acknowledged_message(tmp_path: Path, durability: Durability) -> None:
    settings = _settings(tmp_path, durability)
    acknowledged: list[str] = []
    for round_, lines in enumerate((1, 7, 150, 401)):
        with _child(settings, "publish", f"a{round_}") as one, _child(settings, "publish", f"b{round_}") as two:
            acknowledged += _kill_after(one, lines)
            acknowledged += _kill_after(two, lines)
    backend = await embedded.open(settings)
    found = await _pull_all(backend, "votes")
    await backend.close()
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)


async def test_a_process_that_is_killed_while_it_folds_the_log_loses_nothing_of_any(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    backend = await embedded.open(settings)  # has it open: else the next process would recover the log alone
    acknowledged: list[str] = []
    for round_, lines in enumerate((1, 21, 150)):
        names = [f"{letter}{round_}" for letter in "abc"]
        with (
            _child(settings, "publish", names[0], "short") as one,
            _child(settings, "publish", names[1], "short") as two,
            _child(settings, "publish", names[2]) as three,
        ):
            for process in (one, two, three):
                acknowledged += _kill_after(process, lines)
    found = await _pull_all(backend, "votes")
    assert await backend.write(lambda transaction: transaction.execute("PRAGMA integrity_check").fetchall()) == [
        ("ok",)
    ]
    await backend.close()
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)


async def test_a_killed_writer_leaves_whole_commits_and_every_acknowledged_one(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    for round_, lines in enumerate((1, 3, 40, 111)):
        with _child(settings, "flood", "noise"), _child(settings, "commit", str(round_)) as writer:
            last = int(_kill_after(writer, lines)[-1])
        backend = await embedded.open(settings)
        head = (await backend.store.get([(("Head", str(round_)),)])).found[0]
        entries = await backend.store.query(Query(kind="Entry", ancestor=head.key, keys_only=True))
        await backend.close()
        sequence = head.properties["sequence"]
        assert sequence in (last, last + 1)
        assert [entity.key[-1][1] for entity in entries.entities] == list(range(1, int(str(sequence)) + 1))


async def test_processes_that_write_without_a_pause_do_not_starve_another(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    with _child(settings, "flood", "a") as one, _child(settings, "flood", "b") as two:
        for flood in (one, two):
            assert _output(flood).readline() == b"ready\n"
        with _child(settings, "turns", "worker") as worker:
            counters = [int(_output(worker).readline()) for _ in range(100)]
    between = sorted(later - earlier - 1 for earlier, later in pairwise(counters))
    assert between[50] <= 8, "between two writes of one process there is about one group of each other, of two writes"


async def test_a_disk_that_is_full_is_an_outage_that_loses_nothing_and_ends_by_itself(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    backend = await embedded.open(settings)
    assert (await backend.store.get([(("Any", 1),)])).missing  # has it open: else the child's last close folds the log
    with _child(settings, "fill", "a") as child:
        said = [line.decode().strip() for line in _output(child).readlines()]
    failures = {line for line in said if line.startswith("!")}
    assert failures and failures <= {"! SQLITE_FULL", "! SQLITE_IOERR_WRITE"}
    assert all(line in failures for line in said[-4:-1]) and said[-1] == "after"
    published = [line for line in said if line not in failures]
    assert len(published) * 20_000 > 1_500_000, "the log, folded, leaves the room to the messages"
    found = [text.strip() for text in await _pull_all(backend, "votes")]
    await backend.close()
    assert found == published


def test_a_turn_belongs_to_one_process_and_goes_round(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    notes = tmp_path / "turns"
    with _child(settings, "hold", "a"), _child(settings, "hold", "b"), _child(settings, "hold", "c"):
        limit = time.monotonic() + 30
        while not notes.exists() or min(map(notes.read_bytes().count, (b"a", b"b", b"c"))) < 200:
            assert time.monotonic() < limit, "one of three has few turns in 30 s"
            time.sleep(0.05)
        said = notes.read_bytes()  # before they end: one that is killed in its turn leaves half a pair
    assert all(come == go for come, go in zip(said[::2], said[1::2], strict=False)), "two had the turn at once"
    together = said[said.index(b"a") :][-900:]
    assert min(map(together.count, (b"a", b"b", b"c"))) > 90, "shares are alike"


async def test_a_stopped_process_s_leases_and_writes_go_on_when_it_does(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    with _child(settings, "publish", "a") as one:
        said = [_output(one).readline().decode().strip() for _ in range(50)]
        one.send_signal(signal.SIGSTOP)
        backend = await embedded.open(settings)
        one.send_signal(signal.SIGCONT)
        said += _kill_after(one, 50)
    found = await _pull_all(backend, "votes")
    await backend.close()
    assert set(said) <= set(found)


async def test_the_log_stays_bounded_while_processes_write_and_read(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    with _child(settings, "commit", "a") as one, _child(settings, "commit", "b") as two:
        largest = 0
        for _ in range(900):
            assert _output(one).readline() and _output(two).readline()
            largest = max(largest, (tmp_path / "tally.sqlite3-wal").stat().st_size)
    written = 900 * 2 * 20_000
    assert written > 30_000_000
    assert largest < 26_000_000
