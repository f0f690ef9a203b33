"""One run of a call at a time: copies, cancelled runs, workers that die or shut down."""

import asyncio
from dataclasses import replace

import pytest

from tally.errors import TaskFailed
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.run import State
from tally.testing.process import Process
from tests.unit.tasks.calls import World, counted
from tests.unit.tasks.conftest import Go


def test_a_cancelled_call_never_starts(world: World, run: Go) -> None:
    t, runs = counted(world.registry)

    async def main() -> None:
        handle = await t.later(delay=5).call()
        assert await handle.cancel()
        await world.work()
        assert not runs
        with pytest.raises(TaskFailed, match="cancelled"):
            await handle.result(1)

    run(main())


def test_a_running_call_is_cancelled_within_a_beat(world: World, run: Go) -> None:
    stopped = asyncio.Event()

    @world.registry.task("long")
    async def long() -> None:
        try:
            await asyncio.sleep(500)
        finally:
            stopped.set()

    async def main() -> None:
        handle = await long.call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(1)
        assert await handle.cancel()
        async with asyncio.timeout(20):
            await stopped.wait()
            await working
        assert (await handle.status()).state is State.CANCELLED
        assert not world.line.waiting

    run(main())


def test_a_delivery_that_meets_a_live_run_comes_later_and_starts_nothing(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("slow")
    async def slow() -> None:
        nonlocal ran
        ran += 1
        await asyncio.sleep(300)

    async def main() -> None:
        await slow.call()
        delivery = world.line.waiting[0][2]
        first, second = world.runner("w1"), world.runner("w2")
        working = asyncio.ensure_future(first.run(delivery))
        for _ in range(10):
            await asyncio.sleep(20)
            again = await second.run(delivery)
            assert again is not None
            assert again.at > world.clock.now()
        assert await working is None
        assert await second.run(delivery) is None
        assert ran == 1

    run(main())


def test_a_late_copy_of_an_earlier_call_of_the_same_name_starts_nothing(world: World, run: Go) -> None:
    ran: list[int] = []

    @world.registry.task("work", keep=0)
    async def work(number: int) -> None:
        ran.append(number)

    async def main() -> None:
        await work.later(name="n").call(1)
        late = world.line.waiting[0][2]
        await world.work()
        await asyncio.sleep(3_601)  # the record of the first is gone
        handle = await work.later(name="n", delay=600).call(2)
        assert await world.runner().run(late) is None
        assert (ran, (await handle.status()).state) == ([1], State.QUEUED)
        await world.work()
        assert ran == [1, 2]

    run(main())


def test_a_run_whose_worker_died_is_rescued_and_the_zombie_writes_nothing(world: World, run: Go) -> None:
    @world.registry.task("work")
    async def work() -> str:
        await asyncio.sleep(10)
        return current().worker

    async def main() -> None:
        handle = await work.call()
        delivery = world.line.waiting[0][2]
        frozen = Process("w1")
        zombie = frozen.spawn(world.runner("w1").run(delivery))
        await asyncio.sleep(1)
        frozen.freeze()
        await asyncio.sleep(61)
        assert await world.runner("w2").run(delivery) is None
        assert await handle.result(1) == "w2"
        asyncio.get_running_loop().thaw(frozen)  # type: ignore[attr-defined]  # the virtual loop's
        await zombie
        status = await handle.status()
        assert await handle.result(1) == "w2"
        assert [(attempt.worker, attempt.outcome) for attempt in status.attempts] == [("w1", "lost"), ("w2", "done")]

    run(main())


def test_a_shutdown_gives_the_run_back_at_once_and_does_not_count_it(world: World, run: Go) -> None:
    @world.registry.task("work", retry=RetryPolicy(max_attempts=1))
    async def work() -> str:
        await asyncio.sleep(10)
        return current().worker

    async def main() -> None:
        handle = await work.call()
        delivery = world.line.waiting[0][2]
        working = asyncio.ensure_future(world.runner("w1").run(delivery))
        await asyncio.sleep(1)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert (await handle.status()).state is State.WAITING
        await world.runner("w2").run(replace(delivery, hop=1))
        assert await handle.result(1) == "w2"

    run(main())
