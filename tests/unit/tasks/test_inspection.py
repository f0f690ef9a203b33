"""A queue's numbers are the same whether it is counted by one query or shard by shard."""

from dataclasses import replace

import pytest

from tally.clock import SECOND
from tally.ports import Upsert
from tally.tasks.row import FORMAT
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run

SHARDS = 16


@pytest.mark.parametrize("newer", [False, True], ids=["", "one of a newer format"])
@pytest.mark.parametrize("tasks", [5, SHARDS - 1, SHARDS, SHARDS + 1, 60])
def test_few_tasks_and_many_are_counted_alike(tasks: int, newer: bool) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task(name=f"due-{n}") for n in range(6))
        await queue.add_many(Task(name=f"later-{n}", delay=100 + n) for n in range(tasks - 3))
        leases = await queue.lease(5, seconds=50)
        await queue.complete_many(leases[:2])
        await queue.reject(leases[2], "no")
        if newer:
            row = next(row for row in world.fake.of_kind("Task") if row.key[0][1].endswith(":later-0"))  # type: ignore[union-attr]  # a name
            await world.fake.commit([Upsert(replace(row, properties={**row.properties, "v": FORMAT + 1}))])
        world.store.scanned.clear()
        begun = world.clock.now()
        stats = await queue.stats()
        assert (stats.tasks, stats.in_flight, stats.dead, stats.executed_last_minute) == (tasks, 2, 1, 2)
        assert stats.oldest_eta is not None
        assert begun - SECOND < stats.oldest_eta <= begun
        assert not stats.truncated
        few = tasks < SHARDS and not newer
        assert len(world.store.scanned) == 1 + 2 * SHARDS + (0 if few else 3 * SHARDS)

    run(body)


def test_an_empty_queue_has_no_first_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        assert (await queue.stats()).oldest_eta is None
        await queue.add(Task(delay=60))
        assert (await queue.stats()).oldest_eta == world.clock.now() + 60 * SECOND

    run(body)
