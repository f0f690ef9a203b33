"""What happens to runs is told to subscribers, with times, and no subscriber can harm a run."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, get_args

import pytest

from tally.errors import InvalidInput
from tally.ports import Write
from tally.retry import RetryPolicy
from tally.tasks.context import Context, Discard, Retry, current
from tally.tasks.deferred import Registry
from tally.tasks.events import AGAIN, ENDS, Kind, RunEvent
from tally.tasks.middleware import PATIENCE, Middleware
from tally.tasks.pace import Bounds
from tally.tasks.run import Run, State
from tally.tasks.runs import Runs
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task
from tally.tasks.verdict import Ended
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.process import Process
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go

TWICE = RetryPolicy(max_attempts=2, min_backoff=10.0, max_backoff=10.0)


class World:
    """One registry, and as many workers on its pull queues as a test wants."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.registry = Registry()
        self.told: list[RunEvent] = []
        self.registry.connect(self.system("caller").tasks)

    def system(self, worker: str) -> TaskSystem:
        return TaskSystem(self.registry, self.store, clock=self.clock, random=Random(1), worker=worker)

    def listen(self) -> None:
        self.registry.on()(self.told.append)

    async def work(self, worker: str = "w1", *, seconds: float = 200) -> None:
        executor = self.system(worker).executor({"default": 1}, bounds=Bounds(at_least=4, at_most=4))
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        await executor.run(stop)

    @property
    def kinds(self) -> list[str]:
        return [str(event.kind) for event in self.told]


@pytest.fixture
def world() -> World:
    return World()


async def fine() -> int:
    await asyncio.sleep(3)
    return 1


async def bad() -> None:
    await asyncio.sleep(3)
    raise ValueError("bad luck")


async def busy() -> None:
    if current().attempt == 1:
        raise Retry("not yet", after=60)


async def unwanted() -> None:
    raise Discard("nobody wants it")


async def fatal() -> None:
    raise KeyError("k")


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (fine, ["started", "succeeded"]),
        (bad, ["started", "retried", "started", "failed", "dead-lettered"]),
        (busy, ["started", "snoozed", "started", "succeeded"]),
        (unwanted, ["started", "discarded"]),
        (fatal, ["started", "failed", "dead-lettered"]),
    ],
)
def test_each_way_of_a_run_is_told_in_order(
    world: World, run: Go, function: Callable[[], Coroutine[Any, Any, Any]], kinds: list[str]
) -> None:
    deferred = world.registry.task("t", retry=TWICE, fatal=(KeyError,))(function)
    world.listen()

    async def main() -> None:
        handle = await deferred.call()
        await world.work()
        assert {event.id for event in world.told} == {handle.id}
        assert {(event.task, event.queue, event.worker) for event in world.told} == {("t", "default", "w1")}

    run(main())
    assert world.kinds == kinds


def test_an_event_tells_how_long_the_attempt_waited_and_ran(world: World, run: Go) -> None:
    deferred = world.registry.task("t", retry=TWICE)(bad)
    world.listen()

    async def main() -> None:
        await deferred.later(delay=30).call()
        await asyncio.sleep(50)
        await world.work()

    run(main())
    started, retried, again, failed, _ = world.told
    assert (round(started.waited), started.ran) == (20, None)
    assert retried.ran is not None
    assert (round(retried.waited), round(retried.ran), retried.delay) == (20, 3, 10.0)
    assert (again.attempt, again.ran) == (2, None)
    assert again.waited < 2
    assert "bad luck" in failed.error
    assert [event.reason for event in world.told] == ["", "", "", "exhausted", "exhausted"]


async def freeze_and_rescue(world: World) -> None:
    """Let w1 fall silent in the midst of what is in the queue, w2 do it, and w1 wake up."""
    frozen = Process("w1")
    frozen.spawn(world.work("w1", seconds=1_000))
    await asyncio.sleep(10)
    frozen.freeze()
    await world.work("w2", seconds=200)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.thaw(frozen)
    await asyncio.sleep(60)
    frozen.kill()


def test_a_rescue_is_told_by_the_rescuer_and_the_loss_by_the_one_that_woke(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t() -> None:
        await asyncio.sleep(12)

    world.listen()

    async def main() -> None:
        await t.call()
        await freeze_and_rescue(world)

    run(main())
    assert [(str(event.kind), event.worker, event.attempt) for event in world.told] == [
        ("started", "w1", 1),
        ("rescued", "w2", 2),
        ("started", "w2", 2),
        ("succeeded", "w2", 2),
        ("lost", "w1", 1),
    ]


def test_a_cancelled_run_is_lost_to_its_worker_and_nothing_else_is_told(world: World, run: Go) -> None:
    @world.registry.task("t", retry=RetryPolicy(max_attempts=1))
    async def t() -> None:
        await asyncio.sleep(2)
        raise ValueError("after it was cancelled")

    world.listen()

    async def main() -> None:
        handle = await t.call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(1)
        await handle.cancel()
        await working

    run(main())
    assert world.kinds == ["started", "lost"]


def test_a_stop_that_interrupts_a_run_is_told(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t() -> None:
        await asyncio.sleep(100)

    world.listen()

    async def main() -> None:
        await t.call()
        await world.work("w1", seconds=10)

    run(main())
    assert world.kinds == ["started", "interrupted"]


def test_what_is_no_call_is_told_as_a_dead_letter(world: World, run: Go) -> None:
    world.listen()

    async def main() -> None:
        await world.system("caller").pull("default").add(Task(payload=b"no call"))
        await world.work()

    run(main())
    assert [(event.kind, event.task, event.reason) for event in world.told] == [(Kind.DEAD_LETTERED, "", "undecodable")]


async def raises(_: RunEvent) -> None:
    raise RuntimeError("a bad subscriber")


def exits(_: RunEvent) -> None:
    raise SystemExit(1)


async def gives_up(_: RunEvent) -> None:
    raise asyncio.CancelledError


class Odd(BaseException): ...


def is_odd(_: RunEvent) -> None:
    raise Odd


async def hangs(_: RunEvent) -> None:
    await asyncio.sleep(10 * PATIENCE)


@pytest.mark.parametrize("subscriber", [raises, exits, gives_up, is_odd, hangs])
def test_a_subscriber_harms_neither_the_run_nor_those_told_before_it(
    world: World, run: Go, subscriber: Callable[[RunEvent], Any]
) -> None:
    deferred = world.registry.task("t")(fine)
    world.listen()
    world.registry.on()(subscriber)

    async def main() -> None:
        handle = await deferred.call()
        await world.work()
        status = await handle.status()
        assert (status.state, status.attempt) == (State.DONE, 1)

    run(main())
    assert world.kinds == ["started", "succeeded"]


def test_a_function_is_told_of_the_kinds_that_it_named(world: World, run: Go) -> None:
    deferred = world.registry.task("t", retry=TWICE)(bad)
    told: list[RunEvent] = []
    world.registry.on("failed", Kind.RETRIED)(told.append)

    async def main() -> None:
        await deferred.call()
        await world.work()

    run(main())
    assert [event.kind for event in told] == [Kind.RETRIED, Kind.FAILED]


def test_middleware_is_told_too(world: World, run: Go) -> None:
    log: list[str] = []

    class Around(Middleware):
        def before(self, context: Context) -> None:
            log.append("before")

        async def happened(self, event: RunEvent) -> None:
            log.append(str(event.kind))

    world.registry.use(Around())
    deferred = world.registry.task("t")(fine)

    async def main() -> None:
        await deferred.call()
        await world.work()

    run(main())
    assert log == ["started", "before", "succeeded"]


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="event 'done': want one of started, rescued"):
        Registry().on("done")


def test_every_outcome_that_another_attempt_follows_has_its_event() -> None:
    """An outcome without one would end the runner with a KeyError, after the run was settled."""
    assert set(AGAIN) == set(get_args(Ended))


Change = tuple[Run | None, Run]


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[Change]:
    """Give every change of a run's record that was stored, by whomever: as it was, as it is."""
    found: list[Change] = []
    change = Runs.change

    async def seen(runs: Runs, run_id: str, step: Callable[[Run | None], Run], extra: tuple[Write, ...] = ()) -> Run:
        last: list[Change] = []

        def noted(stored: Run | None) -> Run:
            new = step(stored)
            last.append((stored, new))
            return new

        run = await change(runs, run_id, noted, extra)
        found.extend(each for each in last[-1:] if each[0] is not each[1])
        return run

    monkeypatch.setattr(Runs, "change", seen)
    return found


def due(change: Change) -> list[Kind]:
    """Return the events that a change of a run wants; the `lost` of a run is its former worker's to tell."""
    before, after = change
    was = None if before is None else before.state
    if after.state is State.RUNNING and was is State.RUNNING and before is not None and after.attempt > before.attempt:
        return [Kind.LOST, Kind.RESCUED, Kind.STARTED]
    if after.state == was or after.state is State.QUEUED:
        return []  # a beat, a run that was hastened, a new one
    if after.state is State.RUNNING:
        return [Kind.STARTED]
    if after.state is State.WAITING:
        return [AGAIN[after.attempts[-1].outcome]]
    if after.state is State.CANCELLED:
        return [Kind.LOST] * (was is State.RUNNING)
    return [ENDS[after.state]] if after.state in ENDS else [Kind.DEAD_LETTERED]


def test_every_change_of_a_run_has_its_event_and_every_kind_of_event_happens(
    world: World, run: Go, changes: list[Change]
) -> None:
    """A kind that nothing tells any more, or a state that is reached untold, fails here."""
    for function in (fine, bad, busy, unwanted, fatal):
        world.registry.task(function.__name__, retry=TWICE, fatal=(KeyError,))(function)

    @world.registry.task("long")
    async def long() -> None:
        await asyncio.sleep(12)

    @world.registry.task("endless", queue="endless")
    async def endless() -> None:
        await asyncio.sleep(3_000)

    world.listen()

    async def interrupted_and_cancelled() -> None:
        handles = [await endless.call() for _ in range(2)]
        stop = asyncio.Event()
        executor = world.system("w3").executor({"endless": 1}, bounds=Bounds())
        working = asyncio.ensure_future(executor.run(stop))
        await asyncio.sleep(1)
        await handles[0].cancel()
        await asyncio.sleep(30)
        stop.set()
        await working
        await handles[1].cancel()

    async def main() -> None:
        await long.call()
        await freeze_and_rescue(world)
        await interrupted_and_cancelled()
        for name in ("fine", "bad", "busy", "unwanted", "fatal"):
            await world.registry.functions[name].call()
        await world.system("caller").pull("default").add(Task(payload=b"no call"))
        await world.work()

    run(main())
    parked = [event for event in world.told if event.kind is Kind.DEAD_LETTERED and event.task]
    assert {event.task for event in parked} == {"bad", "fatal"}  # told beside `failed`, which is the change
    wanted = Counter((after.id, kind) for before, after in changes for kind in due((before, after)))
    assert Counter((event.id, event.kind) for event in world.told if event not in parked) == wanted
    assert {event.kind for event in world.told} == set(Kind)
    assert {after.state for _, after in changes} == set(State)
