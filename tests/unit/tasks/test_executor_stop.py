"""An executor that is told to stop: what it finishes, what it gives back, and how long it takes."""

import asyncio
from random import Random
from typing import Any

import pytest

from tally.errors import Unavailable
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.executor import GRACE
from tally.tasks.lease import Lease
from tally.tasks.pace import Bounds
from tally.tasks.queue import PullQueue
from tally.tasks.run import State
from tally.testing.faults import FaultyStore, Network
from tally.testing.plan import Plan
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.executing import World


@pytest.fixture
def world() -> World:
    return World()


def test_stop_takes_no_more_finishes_what_is_short_and_gives_back_what_is_long(world: World, run: Go) -> None:
    done: list[str] = []

    @world.registry.task("t")
    async def t(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(name)

    async def main() -> None:
        await t.call("short", 3)
        long = await t.call("long", 300)
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor().run(stop))
        await asyncio.sleep(1)
        await t.later(delay=1).call("late", 1)
        stop.set()
        begin = asyncio.get_running_loop().time()
        assert await working == 0
        assert asyncio.get_running_loop().time() - begin <= 8
        assert done == ["short"]
        assert (await long.status()).state is State.WAITING
        async with world.working("w2"):
            await long.result(310)
        assert done == ["short", "late", "long"]

    run(main())


def test_a_stop_at_once_gives_back_what_runs_and_another_worker_begins_with_it(world: World, run: Go) -> None:
    starts: list[tuple[str, float]] = []

    @world.registry.task("t", retry=RetryPolicy(max_attempts=1))
    async def t() -> None:
        starts.append((current().worker, asyncio.get_running_loop().time()))
        await asyncio.sleep(4)

    async def main() -> None:
        now = asyncio.get_running_loop().time
        handles = [await t.call() for _ in range(3)]
        stop, at_once = asyncio.Event(), asyncio.Event()
        working = asyncio.ensure_future(world.executor().run(stop, at_once=at_once))
        await asyncio.sleep(1)
        stop.set()
        await asyncio.sleep(1)
        assert not working.done()
        at_once.set()
        begun = now()
        assert await working == 0
        assert now() - begun < 0.5
        for handle in handles:
            status = await handle.status()
            assert (status.state, status.attempts[0].outcome) == (State.WAITING, "interrupted")
        await world.executor(worker="w2").run(asyncio.Event(), until_empty=True)
        assert [(await handle.status()).state for handle in handles] == [State.DONE] * 3
        assert [worker for worker, _ in starts] == ["w1"] * 3 + ["w2"] * 3
        assert max(at for _, at in starts) - begun < 1.5  # no lease and no claim had to end first

    run(main())


@pytest.mark.parametrize("hurried_at", [0, 3], ids=["with the stop", "later"])
def test_a_stop_at_once_waits_for_no_lease_that_does_not_come(
    world: World, run: Go, monkeypatch: pytest.MonkeyPatch, hurried_at: float
) -> None:
    starts: list[int] = []
    lease = PullQueue.lease

    async def late(queue: PullQueue, count: int, **options: Any) -> list[Lease]:
        await asyncio.sleep(10)
        return await lease(queue, count, **options)

    monkeypatch.setattr(PullQueue, "lease", late)

    @world.registry.task("t")
    async def t() -> None:
        starts.append(1)

    async def main() -> None:
        await t.call()
        stop, at_once = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_later(2, stop.set)
        loop.call_later(2 + hurried_at, at_once.set)
        await world.executor().run(stop, at_once=at_once)
        assert loop.time() == 2 + hurried_at
        await asyncio.sleep(60)
        assert not starts

    run(main())


def test_a_stop_at_once_leaves_to_their_leases_what_the_store_does_not_take_back(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t() -> int:
        await asyncio.sleep(4)
        return 7

    async def main() -> None:
        handle = await t.call()
        stop, at_once = asyncio.Event(), asyncio.Event()
        plan = Plan(Random(1), {})
        faulty = world.process("w1", FaultyStore(world.store, Network(plan)))
        executor = faulty.executor({"default": 1}, bounds=Bounds())
        working = asyncio.ensure_future(executor.run(stop, at_once=at_once))
        await asyncio.sleep(1)
        for each in ("get", "commit", "query"):
            plan.break_down(each, Unavailable("the store is out"))
        stop.set()
        at_once.set()
        begun = asyncio.get_running_loop().time()
        await working
        assert asyncio.get_running_loop().time() - begun <= GRACE / 2
        async with world.working("w2"):
            assert await handle.result(200) == 7

    run(main())
