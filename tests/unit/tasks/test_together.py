"""Leases that are settled with writes of their holder's own: together or not at all."""

import asyncio

import pytest

from tally.errors import InvalidInput, LeaseExpired, Unavailable
from tally.ports import Entity, Insert
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run


def test_tasks_and_writes_are_settled_together_or_not_at_all() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=2)
        await queue.add_many(Task(name=f"t{n}", payload=bytes(5_000)) for n in range(6))
        leases = await queue.lease(6, seconds=60)

        def order(name: str) -> Insert:
            return Insert(Entity(key=(("Order", name),), properties={}))

        world.store.after = [Unavailable("the reply was lost")]
        await queue.complete_with(leases[:2], [order("1")])
        assert len(world.fake.of_kind("Order")) == 1
        await queue.extend(leases[2], 90)  # which only moves its version on
        await queue.delete(leases[3].name)
        with pytest.raises(LeaseExpired):
            await queue.complete_with(leases[2:], [order("2")])
        await queue.complete_with([leases[2], *leases[4:]], [order("3")])
        assert len(world.fake.of_kind("Order")) == 2
        assert (await queue.stats()).tasks == 0
        await queue.add(Task(name="last"))
        (late,) = await queue.lease(1, seconds=10)
        await asyncio.sleep(10)
        with pytest.raises(LeaseExpired):
            await queue.complete_with([late], [])
        (late,) = await queue.lease(1, seconds=60)
        world.store.before = [Unavailable("down")] * 20
        with pytest.raises(Unavailable):
            await queue.complete_with([late], [])
        world.store.before = []
        with pytest.raises(InvalidInput, match="501"):
            await queue.complete_with([late], [order(str(n)) for n in range(500)])

    run(body)
