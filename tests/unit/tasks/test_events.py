"""What happens to runs is told to subscribers, with times, and no subscriber can harm a run."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, get_args

import pytest

from tally.errors import InvalidInput
from tally.retry import RetryPolicy
from tally.tasks.context import Context
from tally.tasks.deferred import Registry
from tally.tasks.events import AGAIN, Kind, RunEvent
from tally.tasks.middleware import PATIENCE, Middleware
from tally.tasks.run import State
from tally.tasks.task import Task
from tally.tasks.verdict import Ended
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.telling import TWICE, World, bad, busy, fatal, fine, freeze_and_rescue, unwanted


@pytest.fixture
def world() -> World:
    return World()


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
        await world.serve()
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
        await world.serve()

    run(main())
    started, retried, again, failed, _ = world.told
    assert (round(started.waited), started.ran) == (20, None)
    assert retried.ran is not None
    assert (round(retried.waited), round(retried.ran), retried.delay) == (20, 3, 10.0)
    assert (again.attempt, again.ran) == (2, None)
    assert again.waited < 2
    assert "bad luck" in failed.error
    assert [event.reason for event in world.told] == ["", "", "", "exhausted", "exhausted"]


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


@pytest.mark.parametrize("attempts", [1, 2], ids=["its last attempt", "another would follow"])
def test_a_cancelled_run_is_lost_to_its_worker_and_nothing_else_is_told(world: World, run: Go, attempts: int) -> None:
    @world.registry.task("t", retry=RetryPolicy(max_attempts=attempts))
    async def t() -> None:
        await asyncio.sleep(2)
        raise ValueError("after it was cancelled")

    world.listen()

    async def main() -> None:
        handle = await t.call()
        working = asyncio.ensure_future(world.serve())
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
        await world.serve(seconds=10)

    run(main())
    assert world.kinds == ["started", "interrupted"]


def test_what_is_no_call_is_told_as_a_dead_letter(world: World, run: Go) -> None:
    world.listen()

    async def main() -> None:
        await world.system.pull("default").add(Task(payload=b"no call"))
        await world.serve()

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
        await world.serve()
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
        await world.serve()

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
        await world.serve()

    run(main())
    assert log == ["started", "before", "succeeded"]


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="event 'done': want one of started, rescued"):
        Registry().on("done")


def test_every_outcome_that_another_attempt_follows_has_its_event() -> None:
    """An outcome without one would end the runner with a KeyError, after the run was settled."""
    assert set(AGAIN) == set(get_args(Ended))
