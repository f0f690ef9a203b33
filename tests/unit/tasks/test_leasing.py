"""How much a lease reads, how little lessees meet, and that they share a queue without loss."""

import asyncio
from functools import partial

import pytest

from tally.clock import CLOCK_BOUND, SECOND
from tally.errors import Unavailable
from tally.tasks.leasing import OLDEST
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore
from tests.unit.tasks.pull import World, run

SHARDS = 16


@pytest.mark.parametrize("tasks", [0, 1, 5, 40, 300])
@pytest.mark.parametrize("max_tasks", [1, 2, 7, 30, 200])
def test_no_lease_reads_more_than_twice_the_rows_it_was_asked_for(tasks: int, max_tasks: int) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task(name=f"n-{n}", tag=f"t-{n % 3}") for n in range(tasks))
        for tag in (None, "t-1", OLDEST):
            world.store.scanned.clear()
            leases = await queue.lease(max_tasks, tag=tag)
            heads = SHARDS if tag is OLDEST else 0
            assert sum(world.store.scanned) <= 2 * max_tasks + heads
            assert max(world.store.scanned, default=0) <= 2 * max_tasks
            assert len(leases) <= max_tasks

    run(body)


def test_a_lone_lessee_gets_all_that_it_asks_for() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task() for _ in range(300))
        assert [len(await queue.lease(100)) for _ in range(4)] == [100, 100, 100, 0]

    run(body)


def test_four_lessees_take_at_least_three_times_what_one_takes() -> None:
    def taken(workers: int) -> int:
        async def body(world: World) -> int:
            await world.queue().add_many(Task() for _ in range(700))
            world.store.latency = 0.02
            loop = asyncio.get_running_loop()
            end = loop.time() + 0.6

            async def work() -> int:
                queue = world.queue()
                count = 0
                while loop.time() < end:
                    count += len(await queue.lease(10))
                return count

            return sum(await asyncio.gather(*(work() for _ in range(workers))))

        return run(body)

    one, four = taken(1), taken(4)
    assert four >= 3 * one > 0, f"one leased {one}, four leased {four}"


@pytest.mark.parametrize(("tasks", "met", "queries"), [(1_600, 0.15, 2.0), (800, 0.4, 7.0)])
def test_lessees_meet_seldom_while_there_is_much_and_not_much_when_it_runs_out(
    tasks: int, met: float, queries: float
) -> None:
    """Four take 800 of the tasks, 50 at a time, in several worlds; bounds of commits refused and queries a lease."""

    async def body(world: World, seed: int) -> tuple[int, int]:
        world.random.seed(seed)
        await world.queue().add_many(Task(name=f"{n}") for n in range(tasks))
        world.store.latency = 0.02

        async def work() -> None:
            queue = world.queue()
            for _ in range(4):
                taken = await queue.lease(50)
                await asyncio.sleep(world.random.random() * 0.1)
                await queue.complete_many(taken)

        await asyncio.gather(*(work() for _ in range(4)))
        return world.store.refused, len(world.store.scanned)

    refused = scanned = 0
    for seed in range(4):
        counts = run(partial(body, seed=seed))
        refused, scanned = refused + counts[0], scanned + counts[1]
    assert refused <= met * 64, f"{refused} commits refused in 64 leases"
    assert scanned <= queries * 64, f"{scanned} queries in 64 leases"


def test_eight_lessees_drain_a_queue_with_few_vain_reads_and_commits() -> None:
    """A lease that meets others takes what one shard has, and leaves to them what it found drained."""

    async def body(world: World) -> None:
        await world.queue().add_many(Task() for _ in range(800))
        world.store.latency = 0.02
        world.store.scanned.clear()
        leases = 0

        async def work() -> None:
            nonlocal leases
            queue = world.queue()
            while taken := await queue.lease(40):
                leases += 1
                assert set(await queue.complete_many(taken)) == {"done"}
                await asyncio.sleep(world.random.random() * 0.01)

        await asyncio.gather(*(work() for _ in range(8)))
        last_looks = 8 * SHARDS
        assert len(world.store.scanned) - last_looks <= 6 * leases, (
            f"{len(world.store.scanned)} queries, {leases} leases"
        )
        assert world.store.refused <= 0.5 * leases, f"{world.store.refused} commits refused, {leases} leases"

    run(body)


def test_lessees_of_one_strictly_ordered_shard_go_on_one_after_the_other() -> None:
    async def body(world: World) -> None:
        await world.queue(shards=1).add_many(Task(name=f"{n:03d}") for n in range(100))
        world.store.latency = 0.02
        taken: list[str] = []

        async def work() -> None:
            queue = world.queue()
            while leases := await queue.lease(10, wait=1):
                taken.extend(lease.name for lease in leases)

        await asyncio.gather(*(work() for _ in range(4)))
        assert sorted(taken) == [f"{n:03d}" for n in range(100)]

    run(body)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_clock_that_is_off_leases_nothing_until_it_is_right(side: int) -> None:
    async def body(world: World) -> None:
        clock = VirtualClock(skew=side * CLOCK_BOUND)
        queue = PullQueue(world.store, "q", clock=clock, random=world.random)
        await queue.add_many([Task(), Task()])
        await asyncio.sleep(CLOCK_BOUND / SECOND)
        assert len(await queue.lease()) == 1
        clock.step(side * SECOND)
        await asyncio.sleep(1)
        with pytest.raises(Unavailable, match="21 s from the store's: over 20 s"):
            await queue.lease()
        clock.step(-side * SECOND)
        await asyncio.sleep(1)
        assert len(await queue.lease()) == 1

    run(body)


def test_a_store_that_tells_no_time_is_leased_from_by_any_clock() -> None:
    async def body(world: World) -> None:
        clock = VirtualClock(skew=3_600 * SECOND)
        queue = PullQueue(FakeStore(), "q", clock=clock, random=world.random)
        await queue.add(Task())
        assert len(await queue.lease()) == 1

    run(body)
