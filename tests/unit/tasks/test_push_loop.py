"""The loop that sends the push tasks of a store: when, how often, past which failures; one loop at a time."""

import asyncio
from collections.abc import Sequence

import pytest

from tally.clock import SECOND
from tally.errors import Refused
from tally.ports import Committed, Delete, Write
from tally.retry import RetryPolicy
from tally.tasks.push_entities import TOMBSTONE
from tally.tasks.push_loop import LEASE
from tally.tasks.rate import RateLimits
from tally.testing.process import Process
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.dispatching import World


@pytest.fixture
def world() -> World:
    return World()


def test_tasks_are_sent_at_their_times_and_once(world: World, run: Go) -> None:
    async def main() -> None:
        for task_id, delay in (("c", 30), ("a", 0), ("b", 10)):
            await world.add(task_id, delay=delay)
        assert (await world.dispatcher.stats("q")).tasks == 3
        await world.work(60)
        assert [(round(at), task_id) for at, task_id in world.sent] == [(0, "a"), (10, "b"), (30, "c")]
        assert (await world.dispatcher.stats("q")).tasks == 0

    run(main())


@pytest.mark.parametrize(
    ("statuses", "times"),
    [
        ([200], [0]),
        ([204], [0]),
        ([500, 200], [0, 10]),
        ([404, 200], [0, 10]),
        ([302, 200], [0, 10]),
        ([429, 503, 200], [0, 10, 30]),
        ([0, 200], [0, 10]),
        ([400, 200], [0, 10]),
        ([500, 500, 500, 500, 500], [0, 10, 30]),
    ],
)
def test_whatever_is_not_2xx_is_sent_again_by_the_policy(
    world: World, run: Go, statuses: list[int], times: list[int]
) -> None:
    async def main() -> None:
        world.statuses = statuses
        await world.add("t", retry=RetryPolicy(max_attempts=3, min_backoff=10, max_doublings=5))
        await world.work(200)
        assert world.times() == times
        assert (await world.dispatcher.stats("q")).tasks == 0

    run(main())


def test_an_attempt_past_its_deadline_counts_as_failed(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 100
        await world.add("t", deadline=20.0, retry=RetryPolicy(max_attempts=2, min_backoff=5))
        await world.work(60)
        assert world.times() == [0, 25]

    run(main())


def test_rate_and_concurrency_are_kept(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 1.0
        for number in range(30):
            await world.add(f"t{number}")
        await world.work(60, q=RateLimits(per_second=5, burst=1, concurrent=3))
        assert len(world.sent) == 30
        assert world.most == 3
        assert world.sent[-1][0] >= 9

    run(main())


def test_a_task_is_forced_past_its_time_a_pause_and_the_rate(world: World, run: Go) -> None:
    async def main() -> None:
        await world.dispatcher.pause("q")
        await world.add("far", delay=3_000)
        await world.add("due")
        working = asyncio.ensure_future(world.work(60, q=RateLimits(per_second=0)))
        await asyncio.sleep(10)
        assert await world.dispatcher.run("q", "due")
        await asyncio.sleep(10)
        assert await world.dispatcher.run("q", "far")
        await working
        assert [(round(at), task_id) for at, task_id in world.sent] == [(10, "due"), (20, "far")]
        assert (await world.dispatcher.stats("q")).tasks == 0

    run(main())


def test_a_forced_task_that_fails_is_tried_again_by_its_policy(world: World, run: Go) -> None:
    async def main() -> None:
        world.statuses = [500, 500]
        await world.add("t", delay=3_000, retry=RetryPolicy(min_backoff=10, max_doublings=5))
        await world.dispatcher.run("q", "t")
        await world.work(200)
        assert world.times() == [0, 10, 30]

    run(main())


@pytest.mark.parametrize(("status", "sent"), [(200, [0]), (500, [0, 20])])
def test_a_task_forced_while_it_is_out_is_sent_again_at_once_only_if_it_fails(
    world: World, run: Go, status: int, sent: list[int]
) -> None:
    async def main() -> None:
        world.takes = 20
        world.statuses = [status]
        await world.add("t", retry=RetryPolicy(min_backoff=100))
        working = asyncio.ensure_future(world.work(200))
        await asyncio.sleep(10)
        assert await world.dispatcher.run("q", "t")
        await working
        assert world.times() == sent
        assert (await world.dispatcher.stats("q")).tasks == 0

    run(main())


def test_one_loop_at_a_time_sends_and_the_next_takes_over_from_a_dead_one(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 1
        world.begin = world.clock.now()
        first = Process("first")
        first.spawn(world.loop(1).run(world.stop))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(world.loop(2).run(world.stop))
        for number in range(20):
            await world.add(f"t{number}")
        await asyncio.sleep(5)
        assert len(world.sent) == 20
        first.kill()
        await world.add("late")
        await asyncio.sleep(LEASE / SECOND + 1)
        assert len(world.sent) == 21
        world.stop.set()
        await second

    run(main())


def test_a_loop_keeps_its_lease_from_another_and_sends_without_a_gap(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 0.5
        for second in range(30):
            await world.add(f"t{second}", delay=second)
        beside = asyncio.ensure_future(world.loop(2).run(world.stop))
        await world.work(35)
        await beside
        assert world.times() == list(range(30))

    run(main())


def test_what_was_out_when_the_process_died_is_sent_again(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 5
        await world.add("t")
        first = Process("first")
        first.spawn(world.loop(1).run(world.stop))
        await asyncio.sleep(1)
        first.kill()
        await world.work(30)
        assert [task_id for _, task_id in world.sent] == ["t", "t"]

    run(main())


def test_tombstones_are_swept(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("t")
        await world.work(1)
        await asyncio.sleep(TOMBSTONE / SECOND)
        await world.work(1)
        assert not world.store.of_kind("PushTask")

    run(main())


def test_a_sweep_leaves_a_name_that_is_taken_again_meanwhile(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("t")
        await world.work(1)
        await asyncio.sleep(TOMBSTONE / SECOND)
        commit, refused = world.store.commit, list[Refused]()

        async def late(writes: Sequence[Write]) -> Committed:
            if any(isinstance(write, Delete) for write in writes):
                await world.add("t", delay=30)
            try:
                return await commit(writes)
            except Refused as error:
                refused.append(error)
                raise

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.store, "commit", late)
            await world.work(5)
        assert len(refused) == 1
        await world.work(40)
        assert len(world.sent) == 2, "the new task is lost"

    run(main())
