"""Leases of a pull queue: who holds a task, for how long, and what a lease that is over may do."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput, LeaseExpired
from tally.retry import RetryPolicy
from tally.tasks.leasing import OLDEST
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run


def test_leasing_by_tag_takes_that_tag_only() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task(name=f"{tag}-{n}", tag=tag) for n in range(3) for tag in ("x", "y"))
        await queue.add(Task(name="bare"))
        assert {lease.name for lease in await queue.lease(10, tag="y")} == {"y-0", "y-1", "y-2"}
        assert {lease.name for lease in await queue.lease(10)} == {"x-0", "x-1", "x-2", "bare"}

    run(body)


@pytest.mark.parametrize(("first", "wanted"), [("y", {"y-0", "y-1"}), (None, {"None-0", "None-1"})])
def test_oldest_takes_the_tag_of_the_task_that_is_due_first(first: str | None, wanted: set[str]) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name=f"{first}-0", tag=first))
        await asyncio.sleep(1)
        await queue.add_many(Task(name=f"{tag}-1", tag=tag) for tag in ("x", "y", None))
        assert {lease.name for lease in await queue.lease(10, tag=OLDEST)} == wanted

    run(body)


def test_oldest_of_an_empty_queue_is_nothing() -> None:
    async def body(world: World) -> None:
        assert await world.queue().lease(10, tag=OLDEST) == []

    run(body)


def test_a_lease_waits_for_the_first_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(queue.lease(10, wait=30))
        await asyncio.sleep(5)
        await world.queue().add(Task(name="a"))
        (lease,) = await waiting
        assert lease.name == "a"
        assert 5 <= loop.time() <= 6.1
        assert await queue.lease(10, wait=3) == []
        assert 8 <= loop.time() <= 9.2

    run(body)


def test_an_expired_lease_finishes_nothing_and_its_task_goes_to_another() -> None:
    async def body(world: World) -> None:
        queue, other = world.queue(), world.queue()
        await queue.add(Task(name="a"))
        (zombie,) = await queue.lease(seconds=30)
        await asyncio.sleep(31)
        (lease,) = await other.lease(seconds=30)
        assert (lease.name, lease.attempt) == ("a", 2)
        for finish in (
            queue.complete(zombie),
            queue.release(zombie),
            queue.reject(zombie, "x"),
            queue.extend(zombie, 30),
        ):
            with pytest.raises(LeaseExpired):
                await finish
        assert await queue.complete_many([zombie, lease]) == ["lost", "done"]

    run(body)


def test_a_lease_that_is_over_finishes_nothing_even_while_nobody_else_has_its_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (late,) = await queue.lease(seconds=30)
        await asyncio.sleep(30)
        commits = len(world.store.commits)
        for finish in (queue.complete(late), queue.release(late), queue.reject(late, "x"), queue.extend(late, 30)):
            with pytest.raises(LeaseExpired):
                await finish
        assert len(world.store.commits) == commits
        assert [lease.attempt for lease in await queue.lease()] == [2]

    run(body)


def test_a_task_that_was_given_back_cannot_be_extended() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=30)
        await queue.release(lease, delay=5)
        with pytest.raises(LeaseExpired):
            await queue.extend(lease, 60)
        await asyncio.sleep(5)
        assert [again.attempt for again in await queue.lease()] == [2]

    run(body)


def test_what_a_lease_has_settled_it_cannot_settle_otherwise() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        for first in ("complete", "release", "reject"):
            await queue.add(Task(name=first))
            (lease,) = await queue.lease(seconds=60)
            settle: dict[str, Callable[[], Awaitable[object]]] = {
                "complete": partial(queue.complete, lease),
                "release": partial(queue.release, lease, delay=3_600),
                "reject": partial(queue.reject, lease, "x"),
            }
            await settle[first]()
            for then in settle.keys() - {first}:
                with pytest.raises(LeaseExpired):
                    await settle[then]()

    run(body)


def test_no_lease_is_found_by_the_token_of_a_task_that_waits() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="waits"), Task(name="dead", expires=1)])
        await asyncio.sleep(1)
        await queue.lease(seconds=1)
        await asyncio.sleep(1)
        assert await queue.held_many([("waits", ""), ("dead", ""), ("none", "")]) == [None, None, None]

    run(body)


def test_a_task_deleted_and_swept_while_it_was_held_is_lost_to_its_holder() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=7 * 86_400)
        await queue.delete("a")
        await asyncio.sleep(86_401)
        assert await queue.sweep() == 1
        assert await queue.complete_many([lease]) == ["lost"]
        with pytest.raises(LeaseExpired):
            await queue.extend(lease, 30)

    run(body)


def test_a_holder_whose_clock_is_late_is_fenced_by_the_token() -> None:
    async def body(world: World) -> None:
        slow = world.queue()
        await slow.add(Task(name="a"))
        (zombie,) = await slow.lease(seconds=30)
        world.clock.step(31 * SECOND)
        (lease,) = await world.queue().lease(seconds=30)
        world.clock.step(-31 * SECOND)
        commits = len(world.store.commits)
        with pytest.raises(LeaseExpired):
            await slow.complete(zombie)
        assert len(world.store.commits) > commits  # it did try, and the store refused
        await slow.complete(lease)

    run(body)


def test_extending_keeps_the_task_and_counts_no_attempt() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=30)
        for _ in range(5):
            await asyncio.sleep(20)
            lease = await queue.extend(lease, 30)
        assert await world.queue().lease() == []
        assert lease.attempt == 1
        await queue.complete(lease)

    run(body)


def test_an_older_lease_object_still_finishes_the_task_after_an_extension() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=60)
        await queue.extend(lease, 90)
        await queue.complete(lease)
        assert (await queue.stats()).tasks == 0

    run(body)


def test_a_released_task_is_due_at_once_or_after_the_delay() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        assert await queue.release((await queue.lease())[0]) == "released"
        (lease,) = await queue.lease()
        assert lease.attempt == 2
        await queue.release(lease, delay=timedelta(seconds=10))
        assert await queue.lease() == []
        await asyncio.sleep(10)
        assert len(await queue.lease()) == 1

    run(body)


@pytest.mark.parametrize(
    ("max_tasks", "seconds", "tag", "wait", "says"),
    [
        (0, 60, None, 0, "max_tasks is 0"),
        (1_001, 60, None, 0, "max_tasks is 1001: want 1 to 1000"),
        (True, 60, None, 0, "max_tasks is True"),
        (1, 0, None, 0, "lease seconds is 0 s"),
        (1, 604_801, None, 0, "lease seconds is 604801 s"),
        (1, 60, "", 0, "tag of 0 bytes"),
        (1, 60, "a" * 501, 0, "tag of 501 bytes"),
        (1, 60, None, -1, "wait is -1 s"),
    ],
)
def test_a_lease_out_of_bounds_is_refused(
    max_tasks: int, seconds: float, tag: str | None, wait: float, says: str
) -> None:
    async def body(world: World) -> None:
        with pytest.raises(InvalidInput, match=says):
            await world.queue().lease(max_tasks, seconds=seconds, tag=tag, wait=wait)

    run(body)


def test_a_lease_at_the_limits_is_given() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task() for _ in range(1_010))
        assert len(await queue.lease(1_000, seconds=604_800)) == 1_000

    run(body)


def test_one_lease_gives_no_more_bytes_than_its_limit_but_always_one_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task(payload=bytes(900_000)) for _ in range(40))
        sizes = [len(lease.task.payload) for lease in await queue.lease(1_000)]
        assert 0 < sum(sizes) <= limits.LEASE_BYTES
        assert set(sizes) == {900_000}
        assert len(await queue.lease(1_000)) > 0

    run(body)


def test_a_lease_is_found_again_by_name_and_token() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a", payload=bytes(9_000)))
        (lease,) = await queue.lease()
        with pytest.raises(LeaseExpired):
            await queue.held("a", "wrong")
        with pytest.raises(LeaseExpired):
            await queue.held("a", "")
        await queue.complete(await queue.held("a", lease.token))
        with pytest.raises(LeaseExpired):
            await queue.held("a", lease.token)
        assert {entity.key[-1][0] for entity in world.fake.entities.values()} == {"TaskQueue", "Task"}

    run(body)


def test_a_lease_that_does_not_count_uses_up_no_attempt() -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=2, max_retry_duration=50, min_backoff=1))
        await queue.add(Task())
        for _ in range(5):
            (lease,) = await queue.lease(wait=60)
            assert lease.attempt == 1
            assert await queue.release(lease, delay=30, error="the printer is off", counts=False) == "released"
        for last in ("released", "dead"):  # its time begins with the first attempt that counts
            (lease,) = await queue.lease(wait=60)
            assert lease.last_error is not None
            assert await queue.release(lease, delay=55, error="jammed") == last

    run(body)
