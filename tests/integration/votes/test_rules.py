"""The rules by which votes are neither lost nor doubled, one a test, on real backends: embedded and both emulators.

What none of these stores ever does is for the fakes: it defers no key, loses no reply and applies no commit late.
"""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tally.clock import SECOND, SystemClock
from tally.config import Settings
from tally.errors import Refused, Unavailable
from tally.ports import Backend, Committed, Delete, Entity, Insert, Key, Lookup, Outgoing, Page, Query, Store, Write
from tally.testing.store import key_of
from tally.votes import batch, keys, ledger
from tally.votes.poll import GRACE
from tests.integration.votes.working import Workers, counter, letters, prepare, publish, total
from tests.unit.votes.counting import held, voters
from tests.unit.votes.pipeline import ballots_of, poll, votes

SHARD = keys.shard("p", 0)


class Watched:
    """A store that asks before each lookup, and lets a commit of votes go when its gate is open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.on_get: Callable[[Sequence[Key]], None] = lambda asked: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.gets: list[tuple[Key, ...]] = []
        self.in_flight = self.most_in_flight = 0
        self.lose_replies = False

    async def get(self, asked: Sequence[Key]) -> Lookup:
        self.gets.append(tuple(asked))
        self.on_get(asked)
        return await self.store.get(asked)

    async def query(self, query: Query) -> Page:
        return await self.store.query(query)

    async def commit(self, writes: Sequence[Write]) -> Committed:
        if "~" in str(key_of(writes[0])):  # a probe's
            return await self.store.commit(writes)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.gate.wait()
            answer = await self.store.commit(writes)
        finally:
            self.in_flight -= 1
        if self.lose_replies:
            raise Unavailable("reply lost", status="DEADLINE_EXCEEDED")
        return answer


@pytest.fixture
def store(backend: Backend) -> Watched:
    watched = Watched(backend.store)
    backend.store = watched
    return watched


async def test_the_worker_allows_a_minute_past_the_end_and_no_more(settings: Settings, backend: Backend) -> None:
    end = SystemClock().now() - 10 * SECOND
    made = poll(partitions=1, closes_at=end)
    await prepare(backend, made)
    async with Workers(settings, backend) as workers:
        in_time, late = votes(made, [0, 1], end + GRACE)  # stamped at the end of the minute, and 1 µs after it
        await backend.publisher.publish(settings.topic, [Outgoing(batch.encode([in_time, late]), {})])
        await workers.until_settled(1)

        def published() -> bool:
            return workers.workers[0].health().body["dead_letters"] == 1

        await workers.until(published)
    assert await total(backend, made) == 1
    assert ballots_of(await letters(settings, backend, 1)) == {late.ballot}


async def test_a_copy_waits_for_the_commit_in_flight(settings: Settings, backend: Backend, store: Watched) -> None:
    made = poll(partitions=1)
    await prepare(backend, made)
    async with Workers(settings, backend) as workers:
        store.gate.clear()
        await publish(settings, backend, made, [1], size=1)
        await workers.until(lambda: store.in_flight == 1)
        await publish(settings, backend, made, [1], size=1)
        body = workers.workers[0].health
        await workers.until(lambda: body().body["held"] == 2)
        assert body().body["settled"] == 0
        store.gate.set()
        await workers.until_settled(2)
    assert store.most_in_flight == 1
    assert await total(backend, made) == 1


async def test_a_lost_reply_costs_one_lookup_of_what_is_new(backend: Backend, store: Watched) -> None:
    made = counter(backend)
    await made.refresh()
    for number in range(3):
        await made.commit(voters([number]))
    store.lose_replies = True
    with pytest.raises(Unavailable):
        await made.commit(voters([3]))
    assert made.ballots == 3, "not before the reply"
    store.lose_replies = False
    store.gets.clear()
    await made.refresh()
    assert (await made.commit(voters([3]))).all()
    (asked,) = store.gets
    assert not {keys.segment(SHARD, number) for number in (1, 2, 3)} & set(asked)
    assert await total(backend, poll(partitions=1)) == 4


async def test_a_catch_up_that_fails_half_way_changes_nothing(backend: Backend, store: Watched) -> None:
    made, other = counter(backend), counter(backend)
    await made.refresh()
    await made.commit(voters([0]))
    await other.refresh()
    for number in range(1, 20):
        await other.commit(voters([number]))
    with pytest.raises(Refused):
        await made.commit(voters([5, 50]))
    before = held(made)

    def fail_later_segments(asked: Sequence[Key]) -> None:
        if keys.segment(SHARD, 15) in asked:
            raise Unavailable("down", status="UNAVAILABLE")

    store.on_get = fail_later_segments
    with pytest.raises(Unavailable):
        await made.refresh()
    assert held(made) is before
    with pytest.raises(Refused):
        await made.commit(voters([5, 50]))
    store.on_get = lambda asked: None
    await made.refresh()
    assert (await made.commit(voters([5, 50]))).all()
    assert await total(backend, poll(partitions=1)) == 21


async def test_a_listed_segment_that_is_missing_means_that_the_shard_has_moved(backend: Backend) -> None:
    class FoldsBeforeSegments(Watched):
        async def get(self, asked: Sequence[Key]) -> Lookup:
            if SHARD not in asked and not self.most_in_flight:
                plan = ledger.plan(held(folder), voters([99]), "keep", fold_from=2)
                await self.commit(plan.writes(SHARD, held(folder).version))
            return await super().get(asked)

    folder = counter(backend)
    await folder.refresh()
    for number in range(20):
        await folder.commit(voters([number]))
    backend.store = folding = FoldsBeforeSegments(backend.store)
    reader = counter(backend)
    await reader.refresh()
    assert folding.most_in_flight
    assert sum(SHARD in asked for asked in folding.gets) == 2
    assert reader.ballots == 21


async def test_a_poisoned_entity_stops_its_partition_alone(settings: Settings, backend: Backend) -> None:
    made = poll(partitions=4)
    await prepare(backend, made)
    poison = keys.shard(made.id, 2)
    await backend.store.commit([Insert(Entity(key=poison, properties={"format": 99}))])
    cast = votes(made, range(80), SystemClock().now())
    neighbours = [vote for vote in cast if int.from_bytes(vote.ballot) % 4 != 2]
    async with Workers(settings, backend) as workers:
        messages = await publish(settings, backend, made, range(80), size=1)
        await workers.until_settled(len(neighbours))

        def parked() -> bool:
            return [lane["partition"] for lane in workers.workers[0].health().body["parked"]] == [2]  # type: ignore[attr-defined]  # a list

        await workers.until(parked)
        assert workers.workers[0].health().ok
        assert not workers.workers[0].health().body["store_down"]
        await backend.store.commit([Delete(key=poison)])
        await workers.until_settled(messages)
    assert await total(backend, made) == 80
    assert await letters(settings, backend, 0) == []
