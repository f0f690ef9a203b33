"""The rate of a pull queue over several workers, in virtual time."""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from tally.clock import SECOND
from tally.errors import InvalidInput, Unavailable
from tally.tasks.deferred import Registry
from tally.tasks.lease import Lease
from tally.tasks.leasing import OLDEST
from tally.tasks.pace import Bounds
from tally.tasks.rows import Rows
from tally.tasks.start_rate import StartRate
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task
from tally.tasks.throttle import Throttle
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tests.unit.tasks.pull import Watched, World, run

RATE = StartRate(per_second=10, burst=20)


def most_over(starts: list[int], rate: StartRate) -> float:
    """Return by how many starts some stretch of time holds more than the rate allows."""
    starts = sorted(starts)
    return max(
        bisect_right(starts, end) - first - rate.burst - rate.per_second * (end - begin) / SECOND
        for first, begin in enumerate(starts)
        for end in starts[first:]
    )


def writes(world: World) -> int:
    return sum(write.entity.key[0][0] == "TaskRate" for commit in world.store.commits for write in commit)  # type: ignore[union-attr]  # the rate is never deleted


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (-1, 1), (10_001, 1), (float("nan"), 1), (1, 0), (1, 1_001)])
def test_a_rate_out_of_bounds_is_refused(per_second: float, burst: int) -> None:
    assert StartRate(per_second=10_000, burst=1_000).burst == 1_000
    with pytest.raises(InvalidInput, match="want"):
        StartRate(per_second=per_second, burst=burst)


@pytest.mark.parametrize("per_second", [-1, float("nan"), float("inf"), float("-inf")])
def test_a_rate_out_of_bounds_is_refused_without_a_burst_too(per_second: float) -> None:
    with pytest.raises(InvalidInput, match=f"per_second is {per_second}: want"):
        StartRate.of(per_second)


def test_a_burst_is_a_second_s_tasks_unless_it_is_given() -> None:
    assert [StartRate.of(each).burst for each in (0.1, 5, 9_000)] == [1, 5, 1_000]
    assert StartRate.of(5, 7).burst == 7


def test_tokens_come_at_the_rate_up_to_the_burst() -> None:
    full_at = RATE.take(0, 20, 1_000 * SECOND)
    assert [RATE.tokens(full_at, 1_000 * SECOND + after * SECOND // 10) for after in (0, 1, 15, 20, 900)] == [
        0,
        1,
        15,
        20,
        20,
    ]
    assert RATE.ready_at(full_at, 5) == 1_000 * SECOND + SECOND // 2
    assert RATE.tokens(RATE.put_back(full_at, 3), 1_000 * SECOND) == 3


def test_all_workers_together_keep_to_the_rate_and_use_it() -> None:
    async def body(world: World) -> None:
        first = world.queue(shards=2)
        await first.set_rate(RATE)
        await first.add_many(Task() for _ in range(300))
        starts: list[int] = []

        async def work() -> None:
            queue = world.queue()
            while len(starts) < 300:
                leases = await queue.lease(7, wait=5)
                starts.extend(world.clock.now() for _ in leases)
                await queue.complete_many(leases)

        begun = world.clock.now()
        await asyncio.gather(*(work() for _ in range(4)))
        assert len(starts) == 300
        assert most_over(starts, RATE) <= 0
        assert 28 <= (max(starts) - begun) / SECOND < 34  # (300 - 20) / 10 is the least
        assert writes(world) < 100
        assert (await first.stats()).enforced_rate == 10

    run(body)


def test_an_idle_queue_costs_no_writes_and_its_tokens_are_there_at_once() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.set_rate(RATE)
        await queue.add_many(Task(tag="t") for _ in range(5))
        assert len(await queue.lease(100, tag=OLDEST)) == 5
        assert await queue.lease(100) == []  # takes, finds nothing, gives back
        before = len(world.store.commits)
        for _ in range(20):
            assert await queue.lease(100, wait=2) == []
            assert await queue.lease(100, tag=OLDEST) == []
        assert len(world.store.commits) == before
        await queue.add_many(Task() for _ in range(40))
        assert len(await queue.lease(100)) == 20

    run(body)


def test_what_was_not_used_is_given_back_unless_another_took_meanwhile() -> None:
    rate = StartRate(per_second=0.001, burst=20)

    async def body(world: World) -> None:
        one, other = (
            Throttle(Rows(world.store, queue="q", clock=world.clock, random=Random(n), shards=1)) for n in (1, 2)
        )

        async def yes() -> bool:
            return True

        async def tokens(
            throttle: Throttle, wanted: int, between: Callable[[], Awaitable[object]] | None = None
        ) -> int:
            """Ask for tokens, and use none of them."""
            got = 0

            async def lease(count: int) -> list[Lease]:
                nonlocal got
                got = count
                if between is not None:
                    await between()
                return []

            await throttle.lease(rate, wanted, lease, yes)
            return got

        assert await tokens(one, 20) == 20
        assert await tokens(one, 15, between=lambda: tokens(other, 5)) == 15  # the five are given back, the 15 not
        assert await tokens(other, 5) == 5
        assert await tokens(other, 6) == 0
        assert await tokens(one, 5) == 5

    run(body)


@pytest.mark.parametrize("where", ["before", "after"])
def test_after_an_unknown_outcome_tokens_are_lost_and_never_doubled(where: str) -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.set_rate(RATE)
        await queue.add_many(Task() for _ in range(60))
        setattr(world.store, where, [Unavailable("lost")])
        assert len(await queue.lease(10)) == 10
        more = len(await queue.lease(20, wait=0)) + len(await world.queue().lease(20))
        assert more <= 10

    run(body)


def test_pause_and_off_count_at_once_for_the_process_that_says_so() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.set_rate(StartRate(per_second=0.1, burst=1))
        await queue.add_many(Task() for _ in range(10))
        assert len(await queue.lease(10)) == 1
        assert await queue.lease(10, wait=3) == []
        await queue.pause()
        await queue.set_rate(None)
        assert await queue.lease(10) == []
        await queue.resume()
        assert len(await queue.lease(10)) == 9

    run(body)


def test_executors_start_no_more_runs_than_the_rate(tally_loop: VirtualLoop) -> None:
    clock = VirtualClock()
    store = FakeStore(clock=clock)
    watched = Watched(store)
    registry = Registry()
    starts: list[int] = []

    @registry.task("f", queue="mail")
    async def f() -> None:
        starts.append(clock.now())

    def system(seed: int) -> TaskSystem:
        return TaskSystem(registry, watched, clock=clock, random=Random(seed), worker=f"w{seed}", shards=2)

    async def main() -> None:
        registry.connect(system(0).tasks)
        await system(0).pull("mail").set_rate(RATE)
        for _ in range(90):
            await f.call()
        stop = asyncio.Event()
        workers = [
            asyncio.ensure_future(system(seed).executor({"mail": 1, "other": 1}, bounds=Bounds()).run(stop))
            for seed in (1, 2, 3)
        ]
        begun = clock.now()
        await asyncio.sleep(20)
        stop.set()
        await asyncio.gather(*workers)
        assert len(starts) == 90
        assert most_over(starts, RATE) <= 0
        assert (max(starts) - begun) / SECOND < 11  # (90 - 20) / 10 is the least

    go: Callable[[Coroutine[Any, Any, Any]], Any] = tally_loop.run
    go(main())
