"""Names of tasks in a pull queue: each taken once, held for a while after the end, then free for one who asks."""

import asyncio

import pytest

from tally.errors import Refused
from tally.tasks.task import Task, Unique
from tests.unit.tasks.pull import World, run


def test_a_name_is_free_again_when_its_tombstone_has_served_its_time() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        await queue.complete((await queue.lease())[0])
        assert (await queue.add(Task(name="a"))).status == "tombstoned"
        await asyncio.sleep(86_399)
        assert (await queue.add(Task(name="a"))).status == "tombstoned"
        await asyncio.sleep(2)
        assert (await queue.add(Task(name="a", payload=bytes(10_000)))).status == "added"
        (lease,) = await queue.lease()
        assert len(lease.task.payload) == 10_000

    run(body)


def test_unique_tasks_are_one_in_a_period_even_when_the_first_is_done() -> None:
    async def body(world: World) -> None:
        queue = world.queue()

        async def add(n: int) -> str:
            return (await queue.add(Task.json(n, unique=Unique(period=3_600, key="k")))).status

        assert [await add(1), await add(2)] == ["added", "exists"]
        await queue.complete((await queue.lease())[0])
        await asyncio.sleep(3_590)
        assert await add(3) == "tombstoned"
        await asyncio.sleep(11)
        assert await add(4) == "added"
        assert (await queue.lease())[0].task.value() == 4

    run(body)


def test_a_name_that_is_free_again_is_taken_by_one_of_two_that_come_at_once() -> None:
    async def body(world: World) -> None:
        queue, other = world.queue(), world.queue()
        await queue.add(Task(name="a"))
        await queue.complete((await queue.lease())[0])
        await asyncio.sleep(86_401)
        prepared = await queue.prepare([Task.text("mine", name="a")])
        world.store.meanwhile = [lambda: other.add(Task.text("another's", name="a"))]
        with pytest.raises(Refused):
            await world.store.commit(prepared.writes)
        assert (await queue.add(Task.text("late", name="a"))).status == "exists"
        (lease,) = await queue.lease(10)
        assert lease.task.value() == "another's"

    run(body)


@pytest.mark.parametrize(("state", "free"), [("waiting", False), ("just done", False), ("done long ago", True)])
def test_a_prepared_task_takes_a_name_only_when_it_is_free(state: str, free: bool) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task.text("first", name="a"))
        if state != "waiting":
            await queue.complete((await queue.lease())[0])
            await asyncio.sleep(86_401 if free else 86_399)
        prepared = await queue.prepare([Task.text("second", name="a")])
        if free:
            await world.store.commit(prepared.writes)
            assert [lease.task.value() for lease in await queue.lease(10)] == ["second"]
        else:
            with pytest.raises(Refused):
                await world.store.commit(prepared.writes)

    run(body)


def test_a_sweep_removes_only_tombstones_whose_time_is_over() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="named"), *(Task() for _ in range(20)), Task(name="lives", delay=1_000_000)])
        await queue.complete_many(await queue.lease(100))
        assert await queue.sweep() == 0
        await asyncio.sleep(601)
        assert await queue.sweep() == 20
        await asyncio.sleep(86_400)
        assert await queue.sweep() == 1
        assert [info.name for info in await queue.list()] == ["lives"]

    run(body)


def test_a_sweep_leaves_a_name_that_is_taken_again_meanwhile() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        await queue.complete((await queue.lease())[0])
        await asyncio.sleep(86_401)
        world.store.meanwhile = [lambda: queue.add(Task.text("again", name="a"))]
        await queue.sweep()
        assert [lease.task.value() for lease in await queue.lease(10)] == ["again"]

    run(body)
