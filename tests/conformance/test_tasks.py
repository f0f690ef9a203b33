"""What stands on the pull queue, on every store: its lock, the outbox and calls with results, under the same ids."""

import asyncio
from random import Random, SystemRandom

import pytest

from tally.clock import SystemClock
from tally.errors import Busy, LeaseExpired, NotFound, Refused, TaskFailed
from tally.ports import Entity, Insert, Store
from tally.retry import RetryPolicy
from tally.tasks.deferred import Registry
from tally.tasks.lock import Lock
from tally.tasks.outbox import Outbox
from tally.tasks.pace import Bounds
from tally.tasks.queue import PullQueue
from tally.tasks.run import State
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task


async def test_a_lock_has_one_holder_and_its_fence_grows(store: Store) -> None:
    first, second = (Lock(PullQueue(store, "locks", clock=SystemClock()), "report") for _ in range(2))
    hold = await first.acquire(3_600)
    with pytest.raises(Busy):
        await second.acquire(60)
    hold = await first.extend(hold, 0.3)
    heir = await second.acquire(60, wait=20)
    assert heir.attempt > hold.attempt
    with pytest.raises(LeaseExpired):
        await first.extend(hold, 60)
    await first.release(hold)
    await second.release(heir)
    assert (await first.acquire(60)).attempt > heir.attempt


async def test_the_outbox_adds_once_what_was_committed_and_parks_what_no_queue_takes(store: Store) -> None:
    def find(name: str) -> PullQueue:
        if name == "none":
            raise NotFound("no such queue")
        return PullQueue(store, name, clock=SystemClock())

    outbox = Outbox(store, find, clock=SystemClock(), random=Random())
    good, bad, lost = outbox.entry("q", Task.text("x")), outbox.entry("none", Task()), outbox.entry("q", Task())
    order = Insert(Entity(key=(("Order", "1"),), properties={"n": 1}))
    await store.commit([order, good.write, bad.write])
    with pytest.raises(Refused):
        await store.commit([order, lost.write])
    assert await outbox.drain([good.id, bad.id, lost.id]) == 1
    assert await outbox.drain([good.id, bad.id, lost.id]) == 0
    assert [lease.task.value() for lease in await find("q").lease(10)] == ["x"]
    assert [parked.id async for parked in outbox.parked()] == [bad.id]
    await outbox.drop(bad.id)
    assert [parked.id async for parked in outbox.parked()] == []


async def test_calls_run_once_to_a_result_an_error_or_a_cancellation(store: Store) -> None:
    registry, clock, random = Registry(), SystemClock(), SystemRandom()
    system = TaskSystem(registry, store, clock=clock, random=random, worker="w1")
    registry.connect(system.tasks)

    @registry.task("double", retry=RetryPolicy(max_attempts=1))
    async def double(value: bytes) -> bytes:
        if not value:
            raise ValueError("nothing to double")
        return value + value

    large = bytes(300_000)
    handles = [await double.later(name=f"n-{size}").call(value) for size, value in enumerate((b"x", large, b""))]
    cancelled = await double.later(delay=3_600).call(b"y")
    assert await cancelled.cancel()
    stop = asyncio.Event()
    working = asyncio.create_task(system.executor({"default": 1}, bounds=Bounds(at_least=2, at_most=2)).run(stop))
    assert await handles[0].result(30) == b"xx"
    assert await handles[1].result(30) == large + large
    with pytest.raises(TaskFailed, match="nothing to double"):
        await handles[2].result(30)
    assert (await cancelled.status()).state is State.CANCELLED
    assert [parked.id async for parked in system.tasks.parked()] == [handles[2].id]
    stop.set()
    await working
    await handles[1].forget()
    with pytest.raises(NotFound):
        await handles[1].status()
