"""The worker end to end on real backends: embedded, and both flavours of the Datastore emulator."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from tally import limits
from tally.clock import SECOND, SystemClock
from tally.config import Settings
from tally.errors import Refused, Unavailable
from tally.ports import (
    Backend,
    Committed,
    Delete,
    Key,
    Lookup,
    Outgoing,
    Page,
    Query,
    Received,
    Store,
    Upsert,
    Write,
    read,
)
from tally.testing.store import key_of
from tally.votes import batch, decoder, guard, keys
from tally.votes.batch import Columns
from tally.votes.counter import Purged
from tally.votes.poll import Poll
from tally.votes.polls import to_entity
from tests.integration.votes.working import Workers, counter, letters, prepare, publish, total
from tests.unit.votes.counting import held, voters
from tests.unit.votes.pipeline import ballots, ballots_of, poll, votes
from tests.unit.votes.test_decoder import HOSTILE


class LosesReplies:
    """A store that applies every third commit and answers none of these."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._commits = 0
        self.lost = 0

    async def get(self, asked: Sequence[Key]) -> Lookup:
        return await self._store.get(asked)

    async def query(self, query: Query) -> Page:
        return await self._store.query(query)

    async def commit(self, writes: Sequence[Write]) -> Committed:
        if any("~probe" in str(key_of(write)) for write in writes):
            return await self._store.commit(writes)
        return await self.commit_votes(writes)

    async def commit_votes(self, writes: Sequence[Write]) -> Committed:
        answer = await self._store.commit(writes)
        self._commits += 1
        if self._commits % 3 == 0:
            self.lost += 1
            raise Unavailable("reply lost", status="DEADLINE_EXCEEDED")
        return answer


class Hangs(LosesReplies):
    """A store that answers no commit of votes."""

    async def commit_votes(self, writes: Sequence[Write]) -> Committed:
        await asyncio.sleep(3_600)
        raise AssertionError


@pytest.mark.parametrize("count", [1, 3])
async def test_every_vote_counts_once_with_copies_and_several_workers(
    settings: Settings, backend: Backend, count: int
) -> None:
    made = poll(partitions=4)
    await prepare(backend, made)
    async with Workers(settings, backend, count, fold_from=3) as workers:
        messages = await publish(settings, backend, made, range(2_000), size=20)
        messages += await publish(settings, backend, made, range(300), size=1)
        await workers.until_settled(messages)
    assert await total(backend, made) == 2_000
    assert await letters(settings, backend, 0) == []


async def test_a_commit_whose_reply_is_lost_is_found_by_reading(settings: Settings, backend: Backend) -> None:
    made = poll(partitions=2)
    await prepare(backend, made)
    unreliable = backend.store = LosesReplies(backend.store)
    async with Workers(settings, backend) as workers:
        messages = 0
        for turn in range(6):
            messages += await publish(settings, backend, made, range(turn * 100, turn * 100 + 150), size=10)
            await workers.until_settled(messages)
    assert unreliable.lost > 2
    assert await total(backend, made) == 650


async def test_the_guard_holds_and_its_probe_leaves_nothing(backend: Backend) -> None:
    name = UUID(int=7)
    await guard.probe(backend.store, name)
    shard = keys.shard(f"~probe-{name.hex}", 0)
    found, _ = await read(backend.store, [shard, *(keys.segment(shard, number) for number in (1, 2, 7))])
    assert not found


async def test_a_stale_commit_is_refused_and_its_worker_catches_up(backend: Backend) -> None:
    zombie, other = counter(backend), counter(backend, fold_from=3)
    await zombie.refresh()
    await zombie.commit(voters([0]))
    await other.refresh()
    for number in range(1, 12):
        await other.commit(voters([number]))
    second = keys.segment(keys.shard("p", 0), 2)
    assert second not in (await read(backend.store, [second]))[0], "folded, so the zombie's insert would not be met"
    with pytest.raises(Refused):
        await zombie.commit(voters([1]))
    await zombie.refresh()
    assert (await zombie.commit(voters([1, 12]))).all()
    assert await total(backend, poll(partitions=1)) == 13


async def test_of_commits_at_once_one_wins(backend: Backend) -> None:
    counters = [counter(backend) for _ in range(8)]
    for made in counters:
        await made.refresh()
    outcomes = await asyncio.gather(
        *(made.commit(voters([number])) for number, made in enumerate(counters)), return_exceptions=True
    )
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert all(isinstance(outcome, Refused) for outcome in outcomes if isinstance(outcome, BaseException))


async def test_what_a_fold_moves_is_loaded_as_it_was(backend: Backend) -> None:
    writer = counter(backend, fold_from=4)
    await writer.refresh()
    for number in range(40):
        await writer.commit(voters([number, number // 2]))
    reader = counter(backend)
    await reader.refresh()
    assert reader.ballots == 40
    assert held(reader).shard == held(writer).shard
    assert len(held(reader).shard.segments) < 10


async def test_hostile_messages_cost_no_more_than_themselves(settings: Settings, backend: Backend) -> None:
    made = poll(partitions=2)
    await prepare(backend, made)
    hostile = [Outgoing(data or b" ", {}) for data, _ in HOSTILE.values() if len(data) <= limits.MESSAGE_BYTES]
    async with Workers(settings, backend) as workers:
        messages = await publish(settings, backend, made, range(100), size=7)
        await backend.publisher.publish(settings.topic, hostile)
        messages += await publish(settings, backend, made, range(100, 200), size=7)
        await workers.until_settled(messages + len(hostile))

        def published() -> bool:
            return int(str(workers.workers[0].health().body["dead_letters"])) >= len(hostile)

        await workers.until(published)
    assert await total(backend, made) == 200
    own = ballots(voters_of(made, range(200)))
    assert not own & ballots_of(await letters(settings, backend, len(hostile)))


def voters_of(made: Poll, numbers: Sequence[int]) -> Columns:
    data = batch.encode(votes(made, numbers, 1))
    (columns,) = decoder.decode([Received("", "", 0, data, {})]).columns
    return columns


async def test_a_purged_ledger_is_not_made_again(settings: Settings, backend: Backend) -> None:
    made = poll(partitions=1)
    await prepare(backend, made)
    shard = keys.shard(made.id, 0)
    async with Workers(settings, backend) as workers:
        messages = await publish(settings, backend, made, range(10), size=10)
        await workers.until_settled(messages)
        gone = poll(partitions=1, deleted_at=SystemClock().now() - 31 * 86_400 * SECOND)
        await backend.store.commit([Upsert(to_entity(gone)), Delete(key=shard), Delete(key=keys.segment(shard, 1))])
        messages += await publish(settings, backend, made, range(10, 15), size=5)
        await workers.until_settled(messages)

        def published() -> bool:
            return workers.workers[0].health().body["dead_letters"] == 1

        await workers.until(published)
    assert not (await read(backend.store, [shard]))[0]
    (letter,) = await letters(settings, backend, 1)
    assert letter.attributes["reason"] == "poll-deleted"


async def test_another_worker_that_finds_the_shard_gone_says_purged(backend: Backend) -> None:
    made = counter(backend)
    await made.refresh()
    await made.commit(voters([1]))
    shard = keys.shard("p", 0)
    await backend.store.commit([Delete(key=shard), Delete(key=keys.segment(shard, 1))])
    with pytest.raises(Refused):
        await made.commit(voters([2]))
    with pytest.raises(Purged):
        await made.refresh()


async def test_a_worker_that_is_told_to_stop_gives_its_leases_back(
    settings: Settings, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it could not commit comes again at once, not when the lease ends."""
    if settings.backend == "embedded":  # an emulator goes on for 4 s with pulls that were cancelled
        monkeypatch.setattr("tally.votes.worker.FLUSH_END", 1.0)
    made = poll(partitions=1)
    await prepare(backend, made)
    real = backend.store

    backend.store = Hangs(real)
    loop = asyncio.get_running_loop()
    async with Workers(settings, backend) as workers:
        await publish(settings, backend, made, range(20), size=1)

        def holds() -> bool:
            return workers.workers[0].health().body["held"] == 20

        await workers.until(holds)
        begun = loop.time()
    assert loop.time() - begun < 9
    backend.store = real
    begun = loop.time()
    async with Workers(settings, backend) as workers:
        await workers.until_settled(20)
    assert loop.time() - begun < 8, "sooner than the leases would have ended"
    assert await total(backend, made) == 20
