"""The worker at its bounds, and one past them: what it asks for, loads and keeps in memory, and what is stuck."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from tally import limits
from tally.errors import BackendError, Unavailable
from tally.ports import Key, Lookup, Received, Write
from tally.testing.faults import FaultyPublisher, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.store import key_of
from tally.votes import keys
from tally.votes.lanes import _LANE_BYTES
from tests.unit.votes.pipeline import Pipeline, ballots_of, poll, votes
from tests.unit.votes.scripted import ScriptedStore


def test_a_pull_asks_for_no_more_than_its_limit(tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        pipeline = Pipeline()
        await pipeline.prepare(poll())
        asked: list[int] = []
        puller = pipeline.backend.pubsub.puller("votes")
        pull = puller.pull

        async def note(count: int) -> Sequence[Received]:
            asked.append(count)
            return await pull(count)

        monkeypatch.setattr(puller, "pull", note)
        await pipeline.drain()
        assert set(asked) == {limits.PULL_MESSAGES}

    tally_loop.run(main())


@pytest.mark.parametrize("short_of", [0, 1])
def test_partitions_are_evicted_only_past_the_memory_bound(tally_loop: VirtualLoop, short_of: int) -> None:
    """The bound, CACHED_RECORD_BYTES unless set, is met exactly by two partitions of 100 ballots."""

    async def main() -> None:
        pipeline, made = Pipeline(), [poll("a", partitions=1), poll("b", partitions=1)]
        await pipeline.prepare(*made)
        worker = pipeline.worker(memory=2 * (100 * 28 + _LANE_BYTES) - short_of)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        for one in made:
            await pipeline.publish(votes(one, range(100), pipeline.clock.now()))
            await asyncio.sleep(5)
        assert worker.health().body["partitions"] == 2 - short_of
        stop.set()
        await running
        assert pipeline.worker()._lanes._memory == limits.CACHED_RECORD_BYTES

    tally_loop.run(main())


def test_a_partition_with_votes_waiting_is_never_evicted(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, made = Pipeline(), poll("a", partitions=1)
        await pipeline.prepare(made)
        store = ScriptedStore(pipeline.store)
        pipeline.store = store
        worker = pipeline.worker(memory=1)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        await asyncio.sleep(1)
        store.gate = asyncio.Event()
        await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
        await asyncio.sleep(20)
        assert worker.health().body["partitions"] == 1
        store.gate.set()
        await asyncio.sleep(5)
        assert worker.health().body["partitions"] == 0
        stop.set()
        await running
        assert sum((await pipeline.totals(made)).values()) == 10

    tally_loop.run(main())


def test_two_partitions_are_loaded_at_a_time(tally_loop: VirtualLoop) -> None:
    class Slow(ScriptedStore):
        loading = most = 0

        async def get(self, asked: Sequence[Key]) -> Lookup:
            shard = asked[0][0][0] == keys.SHARD and "~" not in str(asked[0])  # not a probe's
            self.loading += shard
            self.most = max(self.most, self.loading)
            await asyncio.sleep(0.5)
            answer = await super().get(asked)
            self.loading -= shard
            return answer

    async def main() -> None:
        pipeline, made = Pipeline(), poll(partitions=8)
        await pipeline.prepare(made)
        store = Slow(pipeline.store)
        pipeline.store = store
        await pipeline.publish(votes(made, range(200), pipeline.clock.now()))
        assert await pipeline.drain() == [0]
        assert store.most == limits.CONCURRENT_LOADS
        assert sum((await pipeline.totals(made)).values()) == 200

    tally_loop.run(main())


def test_parked_partitions_hold_no_more_than_a_quarter(
    tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More votes for a poisoned partition than the worker may hold at all, and its neighbours still go on."""
    monkeypatch.setattr(limits, "HELD_MESSAGES", 4 * limits.PULL_MESSAGES)

    async def main() -> None:
        pipeline, bad, good = Pipeline(), poll("bad", partitions=1), poll("good", partitions=1)
        await pipeline.prepare(bad, good)
        store = ScriptedStore(pipeline.store)
        pipeline.store = store

        def poison(writes: Sequence[Write]) -> BackendError | None:
            if key_of(writes[0]) == keys.shard("bad", 0):
                raise Unavailable("poisoned", status="UNAVAILABLE")
            return None

        store.on_commit = poison
        worker = pipeline.worker()
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        await pipeline.publish(votes(good, range(10), pipeline.clock.now()))
        await asyncio.sleep(2)
        await pipeline.publish(votes(bad, range(6_000), pipeline.clock.now()), size=1)
        for second in range(120):
            await pipeline.publish(votes(good, range(10 + second, 11 + second), pipeline.clock.now()))
            await asyncio.sleep(1)
            parked = [lane for lane in worker._lanes.parked() if sum(map(len, lane.waiting))]
            held = sum(len(part) for lane in parked for part in lane.waiting)
            assert held <= limits.HELD_MESSAGES // 4 + limits.PULL_MESSAGES
        assert sum((await pipeline.totals(good)).values()) > 100
        store.on_commit = lambda writes: None
        await asyncio.sleep(150)
        stop.set()
        await running
        assert sum((await pipeline.totals(bad)).values()) == 6_000
        assert sum((await pipeline.totals(good)).values()) == 130
        assert await pipeline.dead_letters() == []

    tally_loop.run(main())


@pytest.mark.parametrize("stuck", ["definition unreadable", "dead letters unpublishable"])
def test_what_cannot_be_settled_holds_no_more_than_a_quarter(
    tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    """More votes that are stuck than the worker may hold at all, and those of other polls still go on."""
    monkeypatch.setattr(limits, "PULL_MESSAGES", 100)
    monkeypatch.setattr(limits, "HELD_MESSAGES", 400)

    async def main() -> None:
        pipeline, bad, good = Pipeline(), poll("bad", partitions=1), poll("good", partitions=1)
        await pipeline.prepare(bad, good)
        plan = Plan(Random(1), {})
        publisher = FaultyPublisher(pipeline.backend.publisher, Network(plan))
        store = ScriptedStore(pipeline.store)
        pipeline.store = store
        worker = pipeline.worker(publisher=publisher)
        down = Unavailable("down", status="UNAVAILABLE")

        def unreadable(asked: Sequence[Key]) -> BackendError | None:
            if keys.poll("bad") in asked:
                raise down
            return None

        if stuck == "definition unreadable":
            store.on_get = unreadable
        else:
            plan.break_down("publish", down)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        await pipeline.publish(votes(good, range(10), pipeline.clock.now()))
        await asyncio.sleep(2)
        option = None if stuck == "definition unreadable" else "none"
        await pipeline.publish(votes(bad, range(600), pipeline.clock.now(), option), size=1)
        await asyncio.sleep(0.5)  # what is let go comes again on the second, and is let go in the same instant
        for second in range(120):
            await pipeline.publish(votes(good, range(10 + second, 11 + second), pipeline.clock.now()))
            await asyncio.sleep(1)
            inbox = worker._inbox
            assert len(inbox.held) + len(inbox._lettered) <= limits.HELD_MESSAGES // 4 + 1
        assert sum((await pipeline.totals(good)).values()) > 100
        assert worker.health().ok
        store.on_get = lambda asked: None
        plan.break_down("publish", None)
        await asyncio.sleep(100)
        stop.set()
        await running
        dead = ballots_of(await pipeline.dead_letters())
        assert len(dead) + sum((await pipeline.totals(bad)).values()) == 600
        assert bool(dead) is (option is not None)
        assert sum((await pipeline.totals(good)).values()) == 130

    tally_loop.run(main())
