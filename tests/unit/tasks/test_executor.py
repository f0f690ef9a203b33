"""The pull executor on the fake store, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tally.clock import SECOND
from tally.errors import ConfigError, InvalidInput, Unavailable
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.deferred import Registry
from tally.tasks.executor import GRACE, LATE, SAID, PullExecutor, Source
from tally.tasks.lease import Lease
from tally.tasks.pace import Bounds, concurrency, poll, shares
from tally.tasks.queue import PullQueue
from tally.tasks.run import State
from tally.tasks.system import TaskSystem
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.process import Process
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.registry = Registry()
        self.random = Random(1)
        self.system = self.process("w1")
        self.registry.connect(self.system.tasks)

    def process(self, worker: str) -> TaskSystem:
        return TaskSystem(self.registry, self.store, clock=self.clock, random=self.random, worker=worker, shards=1)

    def executor(
        self, weights: Mapping[str, int], worker: str = "w1", bounds: Bounds | None = None, strict: bool = False
    ) -> PullExecutor:
        return self.process(worker).executor(weights, bounds=bounds or Bounds(), strict=strict)

    async def work(self, *queues: str) -> None:
        await self.executor(dict.fromkeys(queues or ("default",), 1)).run(asyncio.Event(), until_empty=True)


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
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor({"default": 1}).run(stop))
        await asyncio.sleep(300)
        stop.set()
        await working
        assert [b - a for a, b in pairwise(starts)] == pytest.approx([60, 120], abs=3)
        assert (await handle.status()).state is State.FAILED
        assert (await world.system.pull("default").stats()).dead == 0
        assert [parked.call async for parked in world.system.tasks.parked()] == ["bad"]

    run(main())


def test_a_task_longer_than_its_lease_keeps_it(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("long", timeout=1_000)
    async def long() -> None:
        nonlocal ran
        ran += 1
        await asyncio.sleep(500)

    async def main() -> None:
        handle = await long.call()
        stop = asyncio.Event()
        working = [asyncio.ensure_future(world.executor({"default": 1}, worker).run(stop)) for worker in ("w1", "w2")]
        await handle.result(600)
        stop.set()
        await asyncio.gather(*working)
        assert ran == 1

    run(main())


def test_what_a_dead_worker_held_is_run_by_another(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t(number: int) -> int:
        await asyncio.sleep(5)
        return number

    async def main() -> None:
        handles = [await t.call(number) for number in range(8)]
        dying = Process("w1")
        dying.spawn(world.executor({"default": 1}, "w1").run(asyncio.Event()))
        await asyncio.sleep(2)
        dying.kill()
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor({"default": 1}, "w2").run(stop))
        assert [await handle.result(200) for handle in handles] == list(range(8))
        stop.set()
        await working

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
        suspended.spawn(world.executor({"default": 1}, "w1").run(asyncio.Event()))
        await asyncio.sleep(10)
        suspended.freeze()
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor({"default": 1}, "w2").run(stop))
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
        stop.set()
        await working

    run(main())


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
        working = asyncio.ensure_future(world.executor({"default": 1}).run(stop))
        await asyncio.sleep(1)
        await t.later(delay=1).call("late", 1)
        stop.set()
        begin = asyncio.get_running_loop().time()
        assert await working == 0
        assert asyncio.get_running_loop().time() - begin <= 8
        assert done == ["short"]
        assert (await long.status()).state is State.WAITING
        begin = asyncio.get_running_loop().time()
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor({"default": 1}, "w2").run(stop))
        await long.result(310)
        stop.set()
        await working
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
        working = asyncio.ensure_future(world.executor({"default": 1}).run(stop, at_once=at_once))
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
        await world.process("w2").executor({"default": 1}, bounds=Bounds()).run(asyncio.Event(), until_empty=True)
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
        await world.executor({"default": 1}).run(stop, at_once=at_once)
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
        executor = TaskSystem(
            world.registry,
            FaultyStore(world.store, Network(plan)),
            clock=world.clock,
            random=world.random,
            worker="w1",
            shards=1,
        ).executor({"default": 1}, bounds=Bounds())
        working = asyncio.ensure_future(executor.run(stop, at_once=at_once))
        await asyncio.sleep(1)
        for each in ("get", "commit", "query"):
            plan.break_down(each, Unavailable("the store is out"))
        stop.set()
        at_once.set()
        begun = asyncio.get_running_loop().time()
        await working
        assert asyncio.get_running_loop().time() - begun <= GRACE / 2
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor({"default": 1}, "w2").run(stop))
        assert await handle.result(200) == 7
        stop.set()
        await working

    run(main())


@pytest.mark.parametrize("strict", [False, True])
def test_priorities(world: World, run: Go, strict: bool) -> None:
    order: list[str] = []

    @world.registry.task("t")
    async def t(queue: str) -> None:
        order.append(queue)
        await asyncio.sleep(1)

    async def main() -> None:
        for _ in range(50):
            for queue in ("high", "low"):
                await t.later(queue=queue).call(queue)
        executor = world.executor({"low": 1, "high": 4}, bounds=Bounds(at_least=5, at_most=5), strict=strict)
        await executor.run(asyncio.Event(), until_empty=True)
        first = Counter(order[:50])
        assert len(order) == 100
        if strict:
            assert first["high"] >= 45
        else:
            assert 35 <= first["high"] <= 45

    run(main())


@pytest.mark.parametrize(("heavy", "room"), [(20, 1), (20, 3), (7, 1), (3, 1), (30, 8)])
def test_a_light_queue_has_its_turn_while_a_heavy_one_never_empties(
    world: World, run: Go, heavy: int, room: int
) -> None:
    """Between two turns of the light queue the heavy one has no more than its weight, and what runs meanwhile."""
    order: list[str] = []

    @world.registry.task("t")
    async def t(queue: str) -> None:
        order.append(queue)
        await asyncio.sleep(1 + len(order) % 3 / 10)  # places come free one by one, at odd times

    async def main() -> None:
        for _ in range(3 * (heavy + 2 * room)):
            await t.later(queue="heavy").call("heavy")
        executor = world.executor({"heavy": heavy, "light": 1}, bounds=Bounds(at_least=room, at_most=room))
        working = asyncio.ensure_future(executor.run(asyncio.Event(), until_empty=True))
        await asyncio.sleep(3)
        for _ in range(2):
            await t.later(queue="light").call("light")
        late = len(order)
        await working
        places = [late, *(place for place, queue in enumerate(order) if queue == "light")]
        assert len(places) == 3
        assert max(b - a for a, b in pairwise(places)) <= heavy + 2 * room

    run(main())


def test_concurrency_follows_the_backlog_between_its_bounds(world: World, run: Go) -> None:
    now = most = 0

    @world.registry.task("t")
    async def t() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(4)
        now -= 1

    async def main() -> None:
        handles = [await t.call() for _ in range(200)]
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor({"default": 1}, bounds=Bounds(at_least=2, at_most=16)).run(stop))
        await asyncio.sleep(1)
        assert now == 2
        for handle in handles:
            await handle.result(1_000)
        assert most == 16
        stop.set()
        await working

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
        stop = asyncio.Event()
        working = asyncio.ensure_future(world.executor({"default": 1}, bounds=Bounds(at_least=1, at_most=1)).run(stop))
        await asyncio.sleep(LATE + 3.5 * SAID)
        stop.set()
        await working

    with caplog.at_level("WARNING", "tally"):
        run(main())
    behind = [record for record in caplog.records if record.getMessage() == "queue-behind"]
    assert len(behind) == lines
    assert all(record.fields["queue"] == "default" for record in behind)  # type: ignore[attr-defined]  # tally.logs adds it


def test_a_queue_is_pulled_or_pushed_and_not_both(world: World) -> None:
    with pytest.raises(ConfigError, match="not one of"):
        world.system.push("default")
    pushed = TaskSystem(world.registry, world.store, clock=world.clock, random=world.random, pushed=frozenset({"p"}))
    with pytest.raises(ConfigError, match="nothing can be leased"):
        pushed.pull("p")


def test_a_weight_past_its_limit_is_refused(world: World) -> None:
    for weight in (0, 101):
        with pytest.raises(InvalidInput, match="1 to 100"):
            Source(world.system.pull("q"), weight)


@pytest.mark.parametrize(
    ("now", "backlog", "running", "then"),
    [(4, 9, 4, 8), (64, 9, 64, 100), (4, 9, 3, 4), (16, 0, 2, 8), (4, 0, 0, 4), (16, 0, 8, 16)],
)
def test_the_next_concurrency(now: int, backlog: int, running: int, then: int) -> None:
    assert concurrency(now, backlog=backlog, running=running, bounds=Bounds()) == then


def test_the_poll_interval_doubles_to_its_bound_and_falls_back() -> None:
    bounds = Bounds(poll_min=0.5, poll_max=3)
    assert [poll(0.5, found=False, bounds=bounds), poll(2.0, found=False, bounds=bounds)] == [1.0, 3.0]
    assert poll(3.0, found=True, bounds=bounds) == 0.5


def test_small_room_goes_round_by_weight() -> None:
    first = Counter(shares([1, 4], 1, strict=False, turn=turn)[0][0] for turn in range(50))
    assert first == {1: 40, 0: 10}


@pytest.mark.parametrize("bounds", [(0, 1), (5, 4), (1, 1_001)])
def test_bounds_past_the_limits_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput):
        Bounds(at_least=bounds[0], at_most=bounds[1])


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
