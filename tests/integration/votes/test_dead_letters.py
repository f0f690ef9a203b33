"""Refused votes come back by a replay and count once, whatever breaks meanwhile: a real worker on real backends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from tally import bootstrap
from tally.clock import SECOND, SystemClock
from tally.config import Settings
from tally.errors import Unavailable
from tally.ports import Backend, Outgoing, Puller, Received, read
from tally.votes import batch, keys, ledger
from tally.votes.batch import Vote
from tally.votes.known_polls import KnownPolls
from tally.votes.letterbox import Letterbox, Run, Selection
from tally.votes.poll import FOREVER, Option, Poll
from tally.votes.stream import Streams
from tally.votes.worker import Worker
from tests.integration.votes.working import prepare
from tests.unit.votes.pipeline import ballot

VOTES = 250
pytestmark = pytest.mark.parametrize("settings", ["embedded", "emulator-datastore"], indirect=True)


class LosesAcks:
    """A Puller whose first acknowledgement fails, as when the process dies before it."""

    def __init__(self, puller: Puller) -> None:
        self._puller = puller
        self._failed = False

    async def pull(self, max_messages: int) -> Sequence[Received]:
        return await self._puller.pull(max_messages)

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        if not self._failed:
            self._failed = True
            raise Unavailable("gone before the acknowledgement", status="UNAVAILABLE")
        await self._puller.acknowledge(ack_ids)

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        await self._puller.extend(ack_ids, seconds)


async def _work_until(settings: Settings, backend: Backend, done: Callable[[Worker], Awaitable[bool]]) -> None:
    """Run a worker until what it did is enough."""
    worker = bootstrap.vote_worker(settings, backend, bootstrap.World(random=Random(1)))
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    async with asyncio.timeout(60):
        while True:
            if running.done() or await done(worker):
                break
            await asyncio.sleep(0.05)
    stop.set()
    await running


async def _total(backend: Backend, poll: Poll) -> int:
    found, _ = await read(backend.store, [keys.shard(poll.id, number) for number in range(poll.partitions)])
    return sum(sum(ledger.parse_shard(entity).counts) for entity in found.values())


async def test_a_replay_after_a_reopening_counts_every_vote_once(
    settings: Settings, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.votes.letterbox.QUIET_SECONDS", 1.0)
    now = SystemClock().now()
    options = (Option(id="red", label="red"), Option(id="blue", label="blue"))
    fields = {"id": "lunch", "title": "", "options": options, "created_at": 0, "partitions": 4, "key_version": "1"}
    closed = Poll(**fields, closes_at=now - 100 * SECOND)  # type: ignore[arg-type]  # of mixed types
    reopened = Poll(**fields, closes_at=FOREVER)  # type: ignore[arg-type]  # of mixed types
    await prepare(backend, closed)
    votes = [Vote("lunch", ("red", "blue")[i % 2], ballot("lunch", i), now + i) for i in range(VOTES)]
    await backend.publisher.publish(
        settings.topic, [Outgoing(batch.encode(votes[i : i + 50]), {}) for i in range(0, VOTES, 50)]
    )

    async def refused(worker: Worker) -> bool:
        return worker.health().body["dead_letters"] == VOTES // 50

    await _work_until(settings, backend, refused)
    assert await _total(backend, closed) == 0
    box = bootstrap.letterbox(settings, backend)
    letters = await box.read(Selection(poll="lunch"), 100)
    assert {letter.reason for letter in letters} == {"poll-closed"}
    assert sum(letter.votes for letter in letters) == VOTES

    await prepare(backend, reopened)
    losing = LosesAcks(backend.puller(settings.dead_letter_subscription))
    dying = Letterbox(losing, backend.publisher, Streams((settings.topic,)), KnownPolls(backend.store))
    with pytest.raises(Unavailable):
        await dying.replay(Selection(), dry_run=False, progress=_quiet)
    done = await box.replay(Selection(), dry_run=False, progress=_quiet)
    assert done.votes == VOTES, "all are published a second time"

    async def settled(worker: Worker) -> bool:
        return worker.health().body["settled"] == 2 * VOTES // 50

    await _work_until(settings, backend, settled)
    assert await _total(backend, reopened) == VOTES
    assert await box.read(Selection(), 10) == []


def _quiet(so_far: Run) -> None:
    """Show nothing."""
