"""The pull executor: calls run to their results, leases are kept meanwhile, and a lost one costs no second result."""

import asyncio
from itertools import pairwise

import pytest

from tally.clock import SECOND
from tally.errors import ConfigError, InvalidInput
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.executor import LATE, SAID, Source
from tally.tasks.pace import Bounds
from tally.tasks.run import State
from tally.tasks.system import TaskSystem
from tally.testing.loop import VirtualLoop
from tally.testing.process import Process
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.executing import World
from tests.unit.tasks.pull import Watched


@pytest.fixture
def world() -> World:
    return World()


def test_a_call_goes_through_a_pull_queue_to_its_result(world: World, run: Go) -> None:
    @world.registry.task("add", queue="sums")
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        handles = [await add.call(number, 1) for number in range(20)]
        await world.work("sums")
        assert [await handle.result(1) for handle in handles] == list(range(1, 21))
        assert (await world.system.pull("sums").stats()).tasks == 0

    run(main())


def test_a_failure_comes_again_by_the_functions_policy(world: World, run: Go) -> None:
    starts: list[int] = []

    @world.registry.task("bad", retry=RetryPolicy(max_attempts=3, min_backoff=60))
    async def bad() -> None:
        starts.append(world.clock.now() // SECOND)
        raise ValueError

    async def main() -> None:
        handle = await bad.call()
        await world.serve(seconds=300)
        assert [b - a for a, b in pairwise(starts)] == pytest.approx([60, 120], abs=3)
        assert (await handle.status()).state is State.FAILED
        assert (await world.system.pull("default").stats()).dead == 0
        assert [parked.call async for parked in world.system.tasks.parked()] == ["bad"]

    run(main())


def test_a_task_longer_than_its_lease_keeps_it(world: World, run: Go) -> None:
    @world.registry.task("long", timeout=1_000)
    async def long() -> None:
        await asyncio.sleep(500)

    async def main() -> None:
        handle = await long.call()
        async with world.working("w1"), world.working("w2"):
            await asyncio.sleep(490)
            (task,) = await world.system.pull("default").list()
            assert (task.state, task.attempts) == ("leased", 1)
            await handle.result(20)

    run(main())


def test_what_a_dead_worker_held_is_run_by_another(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t(number: int) -> int:
        await asyncio.sleep(5)
        return number

    async def main() -> None:
        handles = [await t.call(number) for number in range(8)]
        dying = Process("w1")
        dying.spawn(world.executor(worker="w1").run(asyncio.Event()))
        await asyncio.sleep(2)
        dying.kill()
        async with world.working("w2"):
            assert [await handle.result(200) for handle in handles] == list(range(8))

    run(main())


@pytest.mark.parametrize("thawed", [80, 300], ids=["while the other is at it", "when the other is done"])
def test_a_worker_suspended_past_its_claim_writes_nothing_when_it_wakes(world: World, run: Go, thawed: int) -> None:
    """Its function may go on, for who could stop it; the result, the state and the queue's task are the other's."""
    effects: list[str] = []

    @world.registry.task("t", timeout=300)
    async def t() -> str:
        await asyncio.sleep(12 if current().attempt == 1 else 60)  # the first ends before its next beat
        effects.append(current().worker)
        return current().worker

    async def main() -> None:
        handle = await t.call()
        suspended = Process("w1")
        suspended.spawn(world.executor(worker="w1").run(asyncio.Event()))
        await asyncio.sleep(10)
        suspended.freeze()
        async with world.working("w2"):
            await asyncio.sleep(thawed - 10)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.thaw(suspended)
            await asyncio.sleep(100)
            assert await handle.result(1) == "w2"
            status = await handle.status()
            assert [(each.worker, each.outcome) for each in status.attempts] == [("w1", "lost"), ("w2", "done")]
            assert sorted(effects) == ["w1", "w2"]
            stats = await world.system.pull("default").stats()
            assert (stats.tasks, stats.dead, stats.executed_last_minute <= 1) == (0, 0, True)
            suspended.kill()

    run(main())


@pytest.mark.parametrize(("paused", "lines"), [(False, 4), (True, 0)])
def test_a_queue_whose_tasks_wait_long_is_named_in_the_log_again_and_again(
    world: World, run: Go, caplog: pytest.LogCaptureFixture, paused: bool, lines: int
) -> None:
    @world.registry.task("t")
    async def t() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        for _ in range(8):
            await t.call()
        if paused:
            await world.system.pull("default").pause()
        async with world.working(bounds=Bounds(at_least=1, at_most=1)):
            await asyncio.sleep(LATE + 3.5 * SAID)

    with caplog.at_level("WARNING", "tally"):
        run(main())
    behind = [record for record in caplog.records if record.getMessage() == "queue-behind"]
    assert len(behind) == lines
    assert all(record.fields["queue"] == "default" for record in behind)  # type: ignore[attr-defined]  # tally.logs adds it


def test_a_worker_with_nothing_to_do_asks_little_and_one_with_much_to_do_is_at_full_size_as_soon(
    world: World, run: Go
) -> None:
    @world.registry.task("t")
    async def t() -> None:
        await asyncio.sleep(30)

    async def main() -> None:
        store = Watched(world.store)
        system = TaskSystem(world.registry, store, clock=world.clock, random=world.random, worker="w1")
        executor = system.executor({"default": 1}, bounds=Bounds(poll_max=2))
        stop = asyncio.Event()
        working = asyncio.create_task(executor.run(stop))
        await asyncio.sleep(300)
        store.calls = 0
        await asyncio.sleep(300)
        assert store.calls <= 300 / 2 * 2 + 300 / 30 * 34  # a record and a glance each poll, and the looks
        for _ in range(40):
            await t.call()
        for seconds, limit in ((2.1, 8), (5, 16), (5, 32)):
            await asyncio.sleep(seconds)
            assert executor.limit == limit
        stop.set()
        await working

    run(main())


def test_a_queue_is_pulled_or_pushed_and_not_both(world: World) -> None:
    with pytest.raises(ConfigError, match="not one of"):
        world.system.push("default")
    pushed = TaskSystem(world.registry, world.store, clock=world.clock, random=world.random, pushed=frozenset({"p"}))
    with pytest.raises(ConfigError, match="nothing can be leased"):
        pushed.pull("p")


def test_a_call_that_waits_in_a_pull_queue_is_run_now(world: World, run: Go) -> None:
    @world.registry.task("f")
    async def f() -> int:
        return world.clock.now()

    async def main() -> None:
        handle = await f.later(delay=9_000).call()
        begun = world.clock.now()
        assert await world.system.tasks.run_now(handle.id)
        await world.work()
        assert await handle.result(1) - begun < 5 * SECOND

    run(main())


def test_a_weight_past_its_limit_is_refused(world: World) -> None:
    for weight in (0, 101):
        with pytest.raises(InvalidInput, match="1 to 100"):
            Source(world.system.pull("q"), weight)
