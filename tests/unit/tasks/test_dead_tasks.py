"""Tasks of a pull queue that fail: how long they wait, and when they become dead letters."""

import asyncio

from tally import limits
from tally.retry import RetryPolicy
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run


def test_failures_back_off_by_the_policy_and_end_as_a_dead_letter_with_the_last_error() -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=3, min_backoff=10, max_backoff=100))
        await queue.add(Task(name="a", payload=bytes(9_000)))
        for wait in (10, 20):
            assert await queue.release((await queue.lease())[0], error="boom") == "released"
            await asyncio.sleep(wait - 1)
            assert await queue.lease() == []
            await asyncio.sleep(1.1)
        (lease,) = await queue.lease()
        assert (lease.attempt, lease.last_error) == (3, "boom")
        assert await queue.release(lease, error="bang") == "dead"
        assert await queue.lease() == []
        (info,) = await queue.list("dead")
        assert (info.state, info.name, info.error) == ("dead", "a", "given up after 3 attempts: bang")
        assert (await queue.add(Task(name="a"))).status == "exists"
        assert await queue.replay("a")
        assert not await queue.replay("a")
        (lease,) = await queue.lease()
        assert (lease.attempt, len(lease.task.payload)) == (1, 9_000)

    run(body)


def test_a_task_whose_workers_die_becomes_a_dead_letter_after_its_attempts() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a", retry=RetryPolicy(max_attempts=2)))
        for _ in range(2):
            assert len(await queue.lease(seconds=10)) == 1
            await asyncio.sleep(11)
        assert await queue.lease() == []
        (info,) = await queue.list("dead")
        assert info.error == "given up after 2 attempts: its lease ended and nothing was heard"
        assert (await queue.stats()).dead == 1
        assert await queue.drop("a")
        assert (await queue.stats()).dead == 0

    run(body)


def test_an_age_limit_alone_ends_a_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=-1, max_retry_duration=60, max_backoff=1, min_backoff=1))
        await queue.add(Task(name="a"))
        while leases := await queue.lease(wait=5):
            await queue.release(leases[0], error="no")
        assert 60 <= asyncio.get_running_loop().time() <= 68
        (info,) = await queue.list("dead")
        assert (info.error or "").endswith("attempts: no")

    run(body)


def test_a_task_that_expires_before_it_runs_is_a_dead_letter() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="a", expires=10), Task(name="b", expires=1_000)])
        await asyncio.sleep(11)
        assert [lease.name for lease in await queue.lease(10)] == ["b"]
        assert [info.error for info in await queue.list("dead")] == ["expired before it ran"]

    run(body)


def test_reject_makes_a_dead_letter_at_once_and_cuts_a_long_error() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        await queue.reject((await queue.lease())[0], "é" * 100_000)
        (info,) = await queue.list("dead")
        assert limits.ERROR_BYTES - 2 <= len((info.error or "").encode()) <= limits.ERROR_BYTES

    run(body)


def test_many_dead_tasks_do_not_hide_the_living() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.add_many(Task(name=f"a-{n}", expires=1) for n in range(9))
        await queue.add(Task(name="b"))
        await asyncio.sleep(2)
        assert [lease.name for lease in await queue.lease(1)] == ["b"]

    run(body)
