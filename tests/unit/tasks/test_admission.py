"""Limits of functions, with whole workers in virtual time."""

import asyncio
from collections import Counter
from random import Random

import pytest

from tally import limits
from tally.clock import SECOND
from tally.retry import RetryPolicy
from tally.tasks.admission import Admission, Admitted, Full, Patience
from tally.tasks.call import Call, Delivery
from tally.tasks.context import current
from tally.tasks.deferred import Registry
from tally.tasks.pace import Bounds
from tally.tasks.pool import WorkerPool
from tally.tasks.push import Target
from tally.tasks.run import State
from tally.tasks.runner import Runner
from tally.tasks.semaphore import Concurrent, Semaphores
from tally.tasks.system import TaskSystem
from tally.testing.clock import VirtualClock
from tally.testing.dispatcher import FakeDispatcher
from tally.testing.process import Process
from tally.testing.process import current as current_process
from tally.testing.store import FakeStore
from tests.unit.tasks.calls import Line
from tests.unit.tasks.conftest import Go


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.registry = Registry()
        self.random = Random(1)
        self.dispatcher = FakeDispatcher(self.clock)
        self.at_work: dict[str, list[Process | None]] = {}
        self.most: Counter[str] = Counter()
        self.registry.connect(self.process("producer").tasks)

    def process(self, worker: str) -> TaskSystem:
        return TaskSystem(
            self.registry,
            self.store,
            clock=self.clock,
            random=self.random,
            dispatcher=self.dispatcher,
            target=Target(url="http://run"),
            pushed=frozenset({"pushed"}),
            worker=worker,
            shards=2,
        )

    def worker(self, name: str) -> Process:
        process = Process(name)
        bounds = Bounds(at_least=20, at_most=20)
        process.spawn(self.process(name).executor({"default": 1}, bounds=bounds).run(asyncio.Event()))
        return process

    async def be_at_work(self, key: str, seconds: float) -> None:
        """Take a while; note how many of a key are at it in processes that live."""
        here = self.at_work.setdefault(key, [])
        process = current_process()
        here.append(process)
        self.most[key] = max(self.most[key], sum(each is None or not each.dead for each in here))
        try:
            await asyncio.sleep(seconds)
        finally:
            here.remove(process)


@pytest.fixture
def world() -> World:
    return World()


def test_no_more_runs_of_a_key_are_at_work_than_its_limit_and_waiting_uses_up_nothing(world: World, run: Go) -> None:
    once = RetryPolicy(max_attempts=1)

    @world.registry.task("f", limit=Concurrent("{customer}-{zone}", 2), retry=once)
    async def f(customer: str, zone: str = "eu") -> None:
        await world.be_at_work(customer, 3)

    async def main() -> None:
        workers = [world.worker(f"w{n}") for n in range(3)]
        begun = world.clock.now()
        handles = [await f.call(f"c{number % 2}") for number in range(40)]
        for handle in handles:
            await handle.result(300)
            status = await handle.status()
            assert (status.attempt, len(status.attempts)) == (1, 1)
        assert world.most == {"c0": 2, "c1": 2}
        took = (world.clock.now() - begun) / SECOND
        assert took < 100, "places stood free for long: 30 s would do"
        for worker in workers:
            worker.kill()

    run(main())


def test_a_worker_that_ends_when_all_is_done_outlasts_the_wait_for_a_place(world: World, run: Go) -> None:
    @world.registry.task("f", limit=Concurrent("one", 1))
    async def f() -> None:
        await world.be_at_work("one", 0.3)

    async def main() -> None:
        handles = [await f.call() for _ in range(12)]
        far = await f.later(delay=10_000).call()
        bounds = Bounds(at_least=20, at_most=20)
        executor = world.process("w").executor({"default": 1}, bounds=bounds)
        async with asyncio.timeout(1_000):
            await executor.run(asyncio.Event(), until_empty=True)
        assert {(await handle.status()).state for handle in handles} == {State.DONE}
        assert (await far.status()).state is State.QUEUED
        assert world.most == {"one": 1}

    run(main())


def test_a_worker_that_dies_frees_its_places_when_its_claims_are_over(world: World, run: Go) -> None:
    @world.registry.task("f", limit=Concurrent("db", 3))
    async def f() -> str:
        await world.be_at_work("db", 20)
        return current().worker

    async def main() -> None:
        handles = [await f.call() for _ in range(9)]
        dying = world.worker("dying")
        await asyncio.sleep(5)
        dying.kill()
        heir = world.worker("heir")
        assert {await handle.result(600) for handle in handles} == {"heir"}
        assert world.most["db"] == 3
        await asyncio.sleep(5)
        assert not world.store.of_kind("TaskSemaphore")
        heir.kill()

    run(main())


def test_a_pushed_call_that_finds_no_place_comes_back_uncounted(world: World, run: Go) -> None:
    @world.registry.task("f", queue="pushed", limit=Concurrent("{key}", 1), retry=RetryPolicy(max_attempts=1))
    async def f(key: str) -> None:
        await world.be_at_work(key, 10)

    async def main() -> None:
        handles = [await f.call("k") for _ in range(4)]
        receiver = world.process("w").receiver()

        async def push(queue: str, task_id: str) -> None:
            task = world.dispatcher.tasks[(queue, task_id)]
            await receiver.receive(queue, dict(task.headers), task.body)
            world.dispatcher.take(queue, task_id)

        out: dict[str, asyncio.Task[None]] = {}
        while world.dispatcher.tasks:
            for (queue, task_id), task in world.dispatcher.tasks.items():
                if task_id not in out and (task.at or 0) <= world.clock.now():
                    out[task_id] = asyncio.ensure_future(push(queue, task_id))
            await asyncio.sleep(0.1)
        for handle in handles:
            status = await handle.status()
            assert (status.state, status.attempt) == (State.DONE, 1)
        assert world.most["k"] == 1
        assert len(out) > 4

    run(main())


def test_a_call_that_is_claimed_too_late_for_its_place_does_not_run_on_it(world: World, run: Go) -> None:
    @world.registry.task("f", limit=Concurrent("k", 1), retry=RetryPolicy(max_attempts=1))
    async def f() -> int:
        return current().attempt

    class Slow(Admission):
        """The store was slow the first time."""

        late = True

        async def enter(self, call: Call, run_id: str, token: str) -> Admitted | Full:
            admitted = await super().enter(call, run_id, token)
            if self.late:
                self.late = False
                await asyncio.sleep(40)
            return admitted

    async def main() -> None:
        system = world.process("w")
        line = Line(world.clock)
        semaphores = Semaphores(world.store, system.tasks.runs, world.clock, world.random)
        admission = Slow(world.registry, world.store, semaphores, clock=world.clock, random=world.random)
        runner = Runner(
            world.registry,
            system.tasks.runs,
            world.store,
            WorkerPool(1),
            clock=world.clock,
            random=world.random,
            worker="w",
            admission=admission,
        )
        handle = await f.call()
        (lease,) = await system.pull("default").lease(1)
        await line.carry(Delivery(queue="default", id=lease.name, payload=lease.task.payload))
        await line.work(runner)
        assert await handle.result(1) == 2
        outcomes = [attempt.outcome for attempt in (await handle.status()).attempts]
        assert outcomes == ["interrupted", "done"]

    run(main())


def test_calls_that_cannot_run_take_no_place(world: World, run: Go) -> None:
    @world.registry.task("f", limit=Concurrent("k", 1))
    async def f(number: int) -> None: ...

    async def main() -> None:
        handle = await f.call(1)
        del world.registry.functions["f"]
        worker = world.worker("w")
        await asyncio.sleep(300)
        assert (await handle.status()).state is State.PARKED
        assert not world.store.of_kind("TaskSemaphore")
        worker.kill()

    run(main())


def test_refusals_double_the_wait_and_starts_shorten_it() -> None:
    patience = Patience(Random(1))
    waits = [patience.refused("k") for _ in range(12)]
    for wait, most in zip(waits, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30, 30], strict=True):
        assert most / 2 <= wait <= most
    patience.admitted("k")
    assert patience.refused("k") <= 16
    assert patience.refused("other") <= 1
    for _ in range(9):
        patience.admitted("k")
    assert patience.refused("k") <= 1


def test_so_many_keys_are_remembered() -> None:
    patience = Patience(Random(1))
    for _ in range(5):
        patience.refused("first")
    for number in range(limits.KEYS_HELD - 1):
        patience.refused(str(number))
    assert patience.refused("first") > 14
    for number in range(limits.KEYS_HELD):
        patience.refused(str(number))
    assert patience.refused("first") <= 1
