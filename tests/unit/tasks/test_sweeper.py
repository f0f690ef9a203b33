import asyncio
from random import Random

from tally.errors import Unavailable
from tally.tasks.deferred import Registry
from tally.tasks.gatherer import Gatherer
from tally.tasks.outbox import Outbox
from tally.tasks.run import Run, State
from tally.tasks.runs import Runs
from tally.tasks.sweeper import Sweeper
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run


def test_the_sweeper_adds_what_was_left_and_removes_tombstones_through_an_outage() -> None:
    async def body(world: World) -> None:
        queue = world.queue("mail")
        box = Outbox(world.store, lambda _: queue, clock=world.clock, random=Random(1))
        runs = Runs(world.store, world.clock, Random(1))
        over = Run(id="r", call="c", queue="mail", epoch=0, due=0, keep=0.0, state=State.DONE, ended=0)
        await runs.change("r", lambda _: over)
        await queue.add(Task.text("done"))
        await queue.complete((await queue.lease())[0])
        await world.store.commit([box.entry("mail", Task.text("left")).write])
        world.store.before = [Unavailable("down")] * 20
        gatherer = Gatherer(Registry(), world.queue, box, clock=world.clock, random=Random(1))
        sweeping = asyncio.create_task(Sweeper(box, runs, [queue], gatherer, random=Random(1)).run())
        (lease,) = await queue.lease(wait=300)
        assert lease.task.value() == "left"
        await asyncio.sleep(1_200)
        assert len(list(world.fake.of_kind("Task"))) == 1
        assert not list(world.fake.of_kind("TaskRun"))
        sweeping.cancel()

    run(body)
