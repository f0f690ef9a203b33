"""Calls of task functions that are enqueued in a transaction: by the outbox, to pull and push queues."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from tally.errors import Refused
from tally.ports import Entity, Insert
from tally.retry import RetryPolicy
from tally.tasks.context import Retry, current
from tally.tasks.deferred import Registry
from tally.tasks.pace import Bounds
from tally.tasks.push import Target
from tally.tasks.run import State
from tally.tasks.system import TaskSystem
from tally.testing.clock import VirtualClock
from tally.testing.dispatcher import FakeDispatcher
from tally.testing.loop import VirtualLoop
from tally.testing.process import Process
from tally.testing.store import FakeStore

ORDER = Insert(Entity(key=(("Order", "1"),), properties={}))


def pulled() -> tuple[Registry, FakeStore, TaskSystem]:
    """Return a system of pull queues alone, with its functions and its store."""
    clock, registry = VirtualClock(), Registry()
    store = FakeStore(clock=clock)
    system = TaskSystem(registry, store, clock=clock, random=Random(1), worker="w", shards=1)
    registry.connect(system.tasks)
    return registry, store, system


@pytest.mark.parametrize("queue", ["pull", "push"])
def test_a_call_in_a_commit_runs_once_and_only_if_it_was_applied(tally_loop: VirtualLoop, queue: str) -> None:
    clock, registry, ran = VirtualClock(), Registry(), list[int]()
    store, dispatcher = FakeStore(clock=clock), FakeDispatcher(clock)
    system = TaskSystem(
        registry,
        store,
        clock=clock,
        random=Random(1),
        dispatcher=dispatcher,
        target=Target(url="https://run.example", audience="https://run.example"),
        pushed=frozenset({"push"}),
        worker="w",
        shards=1,
    )
    registry.connect(system.tasks)

    @registry.task("ship", queue=queue)
    async def ship(order: int) -> None:
        ran.append(order)

    async def work() -> None:
        await system.executor({"pull": 1}, bounds=Bounds()).run(asyncio.Event(), until_empty=True)
        receiver = system.receiver()
        while (due := dispatcher.next()) is not None:
            await receiver.receive("push", due[1].headers, due[1].body)
            dispatcher.take(due[0], due[1].id)

    async def main() -> None:
        box = system.outbox()
        sent, unsent = box.entry(queue, ship.task(1)), box.entry(queue, ship.task(2))
        await store.commit([ORDER, sent.write])
        with pytest.raises(Refused):
            await store.commit([ORDER, unsent.write])
        await box.drain([sent.id, unsent.id])
        await box.drain([sent.id])
        await work()
        assert ran == [1]
        late = box.entry(queue, ship.task(3))
        await store.commit([late.write])
        sweeping = asyncio.create_task(system.sweeper(["pull"]).run())
        await asyncio.sleep(15)
        sweeping.cancel()
        await work()
        assert ran == [1, 3]
        assert not list(store.of_kind("TaskOutbox"))

    run: Callable[..., None] = tally_loop.run
    run(main())


def test_what_uses_up_no_attempt_of_a_call_uses_up_none_of_its_task(tally_loop: VirtualLoop) -> None:
    ran = list[int]()
    registry, store, system = pulled()

    @registry.task("ship", queue="pull")
    async def ship() -> None:
        ran.append(current().attempt)
        if len(ran) < 6:
            raise Retry("the lorry is not there yet", after=1, counts=False)

    async def main() -> None:
        box = system.outbox()
        sent = box.entry("pull", ship.later(retry=RetryPolicy(max_attempts=2)).task())
        await store.commit([sent.write])
        await box.drain([sent.id])
        stop = asyncio.Event()
        working = asyncio.create_task(system.executor({"pull": 1}, bounds=Bounds()).run(stop))
        await asyncio.sleep(60)
        stop.set()
        await working
        assert await system.pull("pull").list("dead") == []
        assert ran == [1, 2, 3, 4, 5, 6]

    run: Callable[..., None] = tally_loop.run
    run(main())


@pytest.mark.parametrize("way", ["outbox", "queue"])
def test_the_run_of_a_dead_worker_is_taken_over_whatever_the_call_s_policy(tally_loop: VirtualLoop, way: str) -> None:
    ran = list[int]()
    registry, store, system = pulled()

    @registry.task("ship", queue="pull")
    async def ship() -> None:
        ran.append(current().attempt)
        await asyncio.sleep(5)

    async def main() -> None:
        box = system.outbox()
        task = ship.later(retry=RetryPolicy(max_attempts=1), name="o-1").task()
        if way == "outbox":
            sent = box.entry("pull", task)
            await store.commit([sent.write])
            await box.drain([sent.id])
        else:
            await system.pull("pull").add(task)
        dying = Process("w1")
        dying.spawn(system.executor({"pull": 1}, bounds=Bounds()).run(asyncio.Event()))
        await asyncio.sleep(2)
        dying.kill()
        stop = asyncio.Event()
        working = asyncio.create_task(system.executor({"pull": 1}, bounds=Bounds()).run(stop))
        await asyncio.sleep(200)
        stop.set()
        await working
        assert ran == [1, 2]
        assert (await system.tasks.handle("o-1").status()).state is State.DONE

    run: Callable[..., None] = tally_loop.run
    run(main())
