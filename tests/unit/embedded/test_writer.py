import asyncio
import fcntl
import shutil
import sqlite3
import threading
from pathlib import Path
from unittest import mock

import pytest

from tally import embedded, limits
from tally.config import Settings
from tally.embedded.backend import SqliteBackend
from tally.embedded.failure import translate
from tally.embedded.writer import Transaction
from tally.errors import Refused, Rejected, Unavailable
from tally.ports import Entity, Outgoing, Upsert
from tests.unit.embedded.conftest import HandClock


async def test_what_waits_shares_one_transaction(backend: SqliteBackend) -> None:
    turns = []
    gate = threading.Event()

    def hold(transaction: Transaction) -> None:
        gate.wait(10)

    def note(transaction: Transaction) -> None:
        turns.append(transaction)

    first = asyncio.create_task(backend.write(hold))
    rest = [asyncio.create_task(backend.write(note)) for _ in range(100)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *rest)
    assert len(turns) == 100
    assert len(set(map(id, turns))) <= 2


@pytest.mark.parametrize("past", [0, 1])
async def test_one_transaction_takes_so_many_writes(backend: SqliteBackend, past: int) -> None:
    turns: list[Transaction] = []
    taken, gate = threading.Event(), threading.Event()

    def hold(transaction: Transaction) -> None:
        taken.set()
        gate.wait(10)

    first = asyncio.create_task(backend.write(hold))
    assert await asyncio.to_thread(taken.wait, 10)
    rest = [asyncio.create_task(backend.write(turns.append)) for _ in range(limits.EMBEDDED_GROUP_WRITES + past)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *rest)
    assert len(set(map(id, turns[: limits.EMBEDDED_GROUP_WRITES]))) == 1
    assert len(set(map(id, turns))) == 1 + past


async def test_a_refused_operation_leaves_its_neighbours_alone(backend: SqliteBackend) -> None:
    def refuse(transaction: Transaction) -> None:
        raise Refused("no", status="NO")

    results = await asyncio.gather(
        backend.publisher.publish("votes", [Outgoing(b"a", {})]),
        backend.write(refuse),
        backend.publisher.publish("votes", [Outgoing(b"b", {})]),
        return_exceptions=True,
    )
    assert isinstance(results[1], Refused)
    assert len(await backend.puller("votes").pull(10)) == 2


async def test_a_value_that_sqlite_cannot_hold_fails_alone(backend: SqliteBackend) -> None:
    def overflow(transaction: Transaction) -> None:
        transaction.execute("UPDATE counter SET value = ?", (1 << 70,))

    gate = threading.Event()
    held = asyncio.create_task(backend.write(lambda transaction: gate.wait(10)))
    results = asyncio.gather(
        backend.publisher.publish("votes", [Outgoing(b"a", {})]),
        backend.write(overflow),
        backend.publisher.publish("votes", [Outgoing(b"b", {})]),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    gate.set()
    await held
    assert [type(result) for result in await results] == [list, Rejected, list]
    assert len(await backend.puller("votes").pull(10)) == 2


async def test_a_full_disk_is_an_outage_that_ends_by_itself(settings: Settings, tmp_path: Path) -> None:
    backend = await embedded.open(settings)
    await backend.prepare()
    await backend.write(lambda transaction: transaction.execute("PRAGMA max_page_count = 60"))
    await backend.publisher.publish("votes", [Outgoing(b"before", {})])
    big = Upsert(Entity(key=(("P", "a"),), properties={"b": b"x" * 400_000}))
    with pytest.raises(Unavailable, match=rf"{tmp_path}.*disk is full") as raised:
        await backend.store.commit([big])
    assert raised.value.status == "SQLITE_FULL"
    together = [backend.store.commit([big]) for _ in range(20)]
    small = backend.publisher.publish("votes", [Outgoing(b"small", {})])
    results = await asyncio.gather(small, *together, return_exceptions=True)
    assert not isinstance(results[0], BaseException), "what fits goes on beside what does not"
    assert all(isinstance(result, Unavailable) for result in results[1:])
    await backend.write(lambda transaction: transaction.execute("PRAGMA max_page_count = 10000"))
    await backend.store.commit([big])
    assert [message.data for message in await backend.puller("votes").pull(10)] == [b"before", b"small"]
    await backend.close()


async def test_on_a_disk_short_of_room_the_log_stays_small(
    backend: SqliteBackend, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    for free in (10_000_000_000, 1_000_000):
        usage = shutil.disk_usage(settings.state)._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", mock.Mock(return_value=usage))
        for _ in range(30):
            await backend.publisher.publish("votes", [Outgoing(b"x" * 50_000, {})])
        sizes.append((settings.state / "tally.sqlite3-wal").stat().st_size)
    assert sizes[0] > 1_500_000
    assert sizes[1] < sizes[0] + 200_000, "what was there is used anew"
    assert len(await backend.puller("votes").pull(1_000)) == 60


async def test_a_lock_that_is_never_given_back_becomes_an_outage(
    backend: SqliteBackend, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.embedded.writer.ANSWER_SECONDS", 0.2)
    with (settings.state / "tally.sqlite3-turn").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="no answer") as raised:
            await backend.publisher.publish("votes", [Outgoing(b"a", {})])
        assert raised.value.status == "DEADLINE_EXCEEDED"
        assert (await backend.store.get([(("P", "a"),)])).missing, "reads go on"
    await backend.publisher.publish("votes", [Outgoing(b"b", {})])
    assert [message.data for message in await backend.puller("votes").pull(10)] == [b"b"]


async def test_closing_behind_a_held_lock_ends_and_leaves_nobody_waiting(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.embedded.writer.ANSWER_SECONDS", 0.1)
    backend = await embedded.open(settings)
    with (settings.state / "tally.sqlite3-turn").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write = asyncio.create_task(backend.write(lambda transaction: None))
        await asyncio.sleep(0)
        await backend.close()
        with pytest.raises(Unavailable, match="no answer"):
            await write


async def test_another_program_s_lock_is_an_outage(
    backend: SqliteBackend, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.publisher.publish("votes", [Outgoing(b"a", {})])
    await backend.write(lambda transaction: transaction.execute("PRAGMA busy_timeout = 50"))
    shell = sqlite3.connect(settings.state / "tally.sqlite3", isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="sqlite3` shell") as raised:
        await backend.publisher.publish("votes", [Outgoing(b"b", {})])
    assert raised.value.status == "SQLITE_BUSY"
    shell.close()
    await backend.publisher.publish("votes", [Outgoing(b"c", {})])


async def test_closing_finishes_what_waits_and_then_refuses(settings: Settings) -> None:
    backend = await embedded.open(settings)
    await backend.prepare()
    publishes = [asyncio.create_task(backend.publisher.publish("votes", [Outgoing(b"a", {})])) for _ in range(50)]
    await asyncio.sleep(0)
    await backend.close()
    await asyncio.gather(*publishes)
    with pytest.raises(Unavailable, match="closed"):
        await backend.publisher.publish("votes", [Outgoing(b"a", {})])
    with pytest.raises(Unavailable, match="closed"):
        await backend.store.get([(("P", "a"),)])
    again = await embedded.open(settings)
    assert len(await again.puller("votes").pull(100)) == 50
    await again.close()


async def test_more_waiting_writes_than_the_limit_are_turned_away(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.embedded.writer.EMBEDDED_WAITING_WRITES", 3)
    gate = threading.Event()
    held = [asyncio.create_task(backend.write(lambda transaction: gate.wait(10))) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable) as raised:
        await backend.write(lambda transaction: None)
    assert raised.value.status == "RESOURCE_EXHAUSTED"
    gate.set()
    await asyncio.gather(*held)
    await backend.write(lambda transaction: None)


async def test_a_file_deleted_or_replaced_while_in_use_takes_no_more_writes(
    backend: SqliteBackend, settings: Settings, clock: HandClock
) -> None:
    await backend.publisher.publish("votes", [Outgoing(b"a", {})])
    for file in settings.state.iterdir():
        file.unlink()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await backend.publisher.publish("votes", [Outgoing(b"b", {})])
        with pytest.raises(Unavailable):
            await backend.store.get([(("P", "a"),)])
    assert not list(settings.state.glob("tally.sqlite3")), "no empty file is made in its place"
    other = await embedded.open(settings, clock)
    await other.prepare()
    await backend.publisher.publish("votes", [Outgoing(b"c", {})])
    assert [message.data for message in await other.puller("votes").pull(10)] == [b"c"]
    await other.close()


async def test_a_file_made_anew_gives_no_version_of_the_one_before_it(
    backend: SqliteBackend, settings: Settings, clock: HandClock
) -> None:
    """By an equal one, a worker that outlived the file would take the new ledger for the one that it holds."""
    entity = Entity(key=(("P", "a"),), properties={})
    before = [(await backend.store.commit([Upsert(entity)])).versions[0] for _ in range(20)]
    for file in settings.state.iterdir():
        file.unlink()
    other = await embedded.open(settings, clock)
    assert (await other.store.commit([Upsert(entity)])).versions[0] > max(before)
    await other.close()


async def test_a_child_of_a_fork_is_told_to_open_its_own(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: -1)
    for attempt in (backend.publisher.publish("votes", [Outgoing(b"a", {})]), backend.store.get([(("P", "a"),)])):
        with pytest.raises(Unavailable, match="before a fork") as raised:
            await attempt
        assert raised.value.status == "FORKED"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OverflowError("too large"), Rejected),
        (sqlite3.DataError("string or blob too big"), Rejected),
        (OSError(5, "Input/output error"), Unavailable),
        (sqlite3.OperationalError("disk I/O error"), Unavailable),
        (sqlite3.DatabaseError("database disk image is malformed"), Unavailable),
        (RuntimeError("bug"), Unavailable),
    ],
)
def test_every_other_error_is_an_outage_that_names_the_file(error: Exception, kind: type[Exception]) -> None:
    translated = translate(error, Path("/a/tally.sqlite3"))
    assert type(translated) is kind
    assert translated.message.startswith("/a/tally.sqlite3: ")
