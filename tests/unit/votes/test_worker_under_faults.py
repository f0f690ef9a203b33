import asyncio
from collections.abc import Sequence
from random import Random

from tally.errors import BackendError, Rejected
from tally.ports import Write
from tally.testing.faults import FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.store import key_of
from tally.votes.counter import Counter
from tests.unit.votes import test_ledger
from tests.unit.votes.pipeline import Pipeline, poll, votes


def test_a_worker_stops_at_once_while_it_still_probes_the_store(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline = Pipeline()
        await pipeline.prepare(poll())
        pipeline.store = FaultyStore(pipeline.store, Network(Plan(Random(1), {"commit:request-lost": 1.0})))
        stop = asyncio.Event()
        run = asyncio.create_task(pipeline.worker().run(stop))
        await asyncio.sleep(1)
        stop.set()
        async with asyncio.timeout(1):
            assert await run == 0

    tally_loop.run(main())


def test_copies_that_need_no_write_do_not_prove_that_a_partition_takes_votes(tally_loop: VirtualLoop) -> None:
    """While a partition refuses every commit, no vote is to blame; only a neighbour's commit would show otherwise."""

    async def main() -> None:
        pipeline, made = Pipeline(), poll(partitions=1)
        await pipeline.prepare(made)
        now = pipeline.clock.now()
        await pipeline.publish(votes(made, [1], now))
        await pipeline.drain()
        store = pipeline.store = FaultyStore(pipeline.store, Network(Plan(Random(1), {})))
        stop = asyncio.Event()
        run = asyncio.create_task(pipeline.worker().run(stop))
        await asyncio.sleep(2)
        store.poison = _refuse_ledger
        await pipeline.publish(votes(made, [2], now))
        for _ in range(10):
            await asyncio.sleep(2)
            await pipeline.publish(votes(made, [1], now))
        store.poison = None
        await asyncio.sleep(120)
        stop.set()
        await run
        assert await pipeline.dead_letters() == []
        assert sum((await pipeline.totals(made)).values()) == 2

    tally_loop.run(main())


def test_a_neighbour_that_another_worker_counts_shows_that_the_vote_is_to_blame(tally_loop: VirtualLoop) -> None:
    """The worker that holds a lone bad vote may never get another of its partition: it sees them in the ledger."""

    async def main() -> None:
        pipeline, made = Pipeline(), poll(partitions=1)
        await pipeline.prepare(made)
        good = pipeline.store
        pipeline.store = FaultyStore(good, Network(Plan(Random(1), {})))
        pipeline.store.poison = _refuse_ledger
        now = pipeline.clock.now()
        stop = asyncio.Event()
        run = asyncio.create_task(pipeline.worker().run(stop))
        await pipeline.publish(votes(made, [1], now))
        await asyncio.sleep(5)
        others = Counter(good, "p", 0, made.revote, loads=asyncio.Semaphore(2), fold_from=32)
        await others.refresh()
        await others.commit(test_ledger.records([(7, 0, now)]))
        await asyncio.sleep(120)
        (letter,) = await pipeline.dead_letters()
        assert letter.attributes["reason"] == "store-rejected"
        stop.set()
        await run

    tally_loop.run(main())


def _refuse_ledger(writes: Sequence[Write]) -> BackendError | None:
    return Rejected("poisoned", status="INVALID_ARGUMENT") if key_of(writes[0])[0] == ("Shard", "p:0") else None


def test_a_pause_that_ends_at_the_moment_it_is_cut_short_just_ends(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline = Pipeline()
        await pipeline.prepare()
        worker = pipeline.worker()
        lane = worker._lanes._lane(poll(), 0)
        loop = asyncio.get_running_loop()
        pausing = asyncio.create_task(lane._pause(5))
        await asyncio.sleep(0)
        loop.call_later(5, lane.hurry)
        await pausing
        assert loop.time() >= 5
        lane.hurry()

    tally_loop.run(main())
