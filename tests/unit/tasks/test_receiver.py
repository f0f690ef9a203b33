"""Calls on push queues: what `run_task` does with what the service sends."""

import asyncio
from datetime import timedelta

import pytest

from tally.clock import SECOND
from tally.errors import Forbidden, InvalidInput, NotFound, TaskFailed
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.push import DELIVERY_HEADER
from tally.tasks.run import State
from tally.tasks.task import Task
from tests.unit.tasks.calls import counted
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.pushing import ACCOUNT, DAY, World


@pytest.fixture
def world() -> World:
    return World()


def test_a_call_is_pushed_to_run_task_with_a_token_for_its_service(world: World, run: Go) -> None:
    @world.registry.task("add", queue="push", timeout=20)
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        handle = await add.call(2, 3)
        [((queue, task_id), task)] = world.dispatcher.tasks.items()
        assert (queue, task.url, task.audience) == (
            "push",
            "https://run.example/base/v1/run/push",
            "https://run.example",
        )
        assert (task.deadline, len(task_id)) == (25.0, 32)
        await world.work()
        assert await handle.result(1) == 5

    run(main())


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer ",
        f"Basic {ACCOUNT}|https://run.example",
        f"Bearer {ACCOUNT}|https://run.example?x=1",
        "Bearer other@p|https://run.example",
    ],
)
def test_run_task_refuses_any_caller_but_its_own(world: World, run: Go, authorization: str) -> None:
    t, runs = counted(world.registry, queue="push")

    async def main() -> None:
        await t.call()
        task = next(iter(world.dispatcher.tasks.values()))
        headers = {**task.headers, "authorization": authorization, "x-cloudtasks-taskname": "spoofed"}
        with pytest.raises(Forbidden):
            await world.system.receiver().receive("push", headers, task.body)
        assert not runs

    run(main())


def test_a_retry_is_a_task_of_its_own_and_the_queue_sees_only_successes(world: World, run: Go) -> None:
    @world.registry.task("bad", queue="push", retry=RetryPolicy(max_attempts=4, min_backoff=10, max_doublings=1))
    async def bad() -> None:
        raise ValueError("no")

    async def main() -> None:
        handle = await bad.call()
        await world.work()
        begin = world.sent[0][0]
        assert [(at - begin) // SECOND for at, _ in world.sent] == [0, 10, 30, 70]
        assert len({task.id for _, task in world.sent}) == 4
        assert (await handle.status()).state is State.FAILED
        assert [parked.reason async for parked in world.system.tasks.parked()] == ["exhausted"]

    run(main())


@pytest.mark.parametrize("days", [0.5, 29.9, 30.1, 100, 400])
def test_any_time_ahead_is_reached_under_one_handle(world: World, run: Go, days: float) -> None:
    ran: list[int] = []

    @world.registry.task("t", queue="push")
    async def t() -> None:
        ran.append(world.clock.now())

    async def main() -> None:
        begin = world.clock.now()
        handle = await t.later(delay=timedelta(days=days)).call()
        assert (await handle.status()).state is State.QUEUED
        await world.work()
        assert [at - begin for at in ran] == [round(days * DAY * SECOND)]
        assert (await handle.status()).attempt == 1
        assert len(world.sent) == days // 29 + 1

    run(main())


def test_a_call_on_its_way_through_hops_can_be_cancelled(world: World, run: Go) -> None:
    t, runs = counted(world.registry, queue="push")

    async def main() -> None:
        handle = await t.later(delay=timedelta(days=100)).call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(40 * DAY)
        assert await handle.cancel()
        await working
        assert not runs
        assert not world.dispatcher.tasks

    run(main())


def test_large_arguments_travel_beside_the_task(world: World, run: Go) -> None:
    @world.registry.task("size", queue="push")
    async def size(text: str) -> int:
        return len(text)

    async def main() -> None:
        handle = await size.call("x" * 7_900_000)
        [task] = world.dispatcher.tasks.values()
        assert len(task.body) < 1_000
        await world.work()
        assert await handle.result(1) == 7_900_000

    run(main())


def test_a_handler_slower_than_its_deadline_does_not_run_twice(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("slow", queue="push", timeout=4_000)
    async def slow() -> str:
        nonlocal ran
        ran += 1
        await asyncio.sleep(3_000)
        return "done"

    async def main() -> None:
        handle = await slow.call()
        receiver = world.system.receiver()
        _, task = world.dispatcher.next() or pytest.fail("no task")
        first = asyncio.ensure_future(world.deliver(receiver, task))
        await asyncio.sleep(1_800)
        await world.work()
        await first
        assert await handle.result(1) == "done"
        assert ran == 1

    run(main())


def test_a_run_whose_process_died_is_rescued_by_the_next_delivery(world: World, run: Go) -> None:
    from tally.testing.process import Process

    @world.registry.task("t", queue="push")
    async def t() -> str:
        await asyncio.sleep(30)
        return "done"

    async def main() -> None:
        handle = await t.call()
        _, task = world.dispatcher.next() or pytest.fail("no task")
        process = Process("instance")
        process.spawn(world.deliver(world.system.receiver(), task))
        await asyncio.sleep(10)
        process.kill()
        await world.work()
        assert await handle.result(1) == "done"
        assert [attempt.outcome for attempt in (await handle.status()).attempts] == ["lost", "done"]

    run(main())


def test_a_process_that_dies_before_it_sends_the_retry_loses_nothing(world: World, run: Go) -> None:
    """Between the record of the failed attempt and the next task the queue is out; the same delivery comes again."""

    @world.registry.task("t", queue="push", retry=RetryPolicy(max_attempts=3, min_backoff=5))
    async def t() -> None:
        raise ValueError

    async def main() -> None:
        handle = await t.call()
        world.dispatcher.refuse = 6
        await world.work()
        assert (await handle.status()).attempt == 3
        assert (await handle.status()).state is State.FAILED

    run(main())


def test_a_late_copy_of_an_earlier_delivery_starts_nothing(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("t", queue="push", retry=RetryPolicy(max_attempts=2, min_backoff=100))
    async def t() -> None:
        nonlocal ran
        ran += 1
        raise ValueError

    async def main() -> None:
        await t.call()
        _, task = world.dispatcher.next() or pytest.fail("no task")
        receiver = world.system.receiver()
        for _ in range(5):
            await world.deliver(receiver, task)
        assert ran == 1
        world.dispatcher.take("push", task.id)
        assert len(world.dispatcher.tasks) == 1
        await world.work()
        assert ran == 2

    run(main())


@pytest.mark.parametrize(("lost", "refused"), [(1, 0), (0, 1), (3, 0), (1, 1)])
def test_an_enqueue_with_an_unknown_outcome_is_one_task(world: World, run: Go, lost: int, refused: int) -> None:
    @world.registry.task("t", queue="push")
    async def t() -> None: ...

    async def main() -> None:
        world.dispatcher.lose_replies, world.dispatcher.refuse = lost, refused
        await t.call()
        assert len(world.dispatcher.tasks) == 1
        world.dispatcher.lose_replies, world.dispatcher.refuse = lost, refused
        outcome = await world.queue.add(Task(payload=b"x"), url="https://a.example/")
        assert outcome.status == "added"
        assert len(world.dispatcher.tasks) == 2

    run(main())


def test_run_task_takes_calls_that_another_program_created(world: World, run: Go) -> None:
    @world.registry.task("add", queue="push")
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        body = b'{"v":1,"call":"add","id":"from-go","arguments":{"a":1,"b":2}}'
        receiver = world.system.receiver()
        allowed = {"authorization": f"Bearer {ACCOUNT}|https://run.example"}
        await receiver.receive("push", {"x-cloudtasks-taskname": "t-1", **allowed}, body)
        assert await world.system.tasks.handle("from-go").result(1) == 3
        with pytest.raises(InvalidInput):
            await receiver.receive("push", allowed, body)
        with pytest.raises(InvalidInput):
            await receiver.receive("push", {DELIVERY_HEADER: "{", **allowed}, body)

    run(main())


@pytest.mark.parametrize("days", [2, 100])
def test_a_call_that_waits_is_run_now(world: World, run: Go, days: float) -> None:
    @world.registry.task("f", queue="push", retry=RetryPolicy(max_attempts=2, min_backoff=3_600))
    async def f() -> int:
        if current().attempt == 1:
            raise ValueError
        return world.clock.now()

    async def main() -> None:
        handle = await f.later(delay=timedelta(days=days)).call()
        begun = world.clock.now()
        assert await world.system.tasks.run_now(handle.id)
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(10)
        assert (await handle.status()).state is State.WAITING
        assert await world.system.tasks.run_now(handle.id)  # its second attempt, an hour early
        working.cancel()  # the service that was asleep until then
        await world.work()
        assert await handle.result(1) - begun < 20 * SECOND
        assert not await world.system.tasks.run_now(handle.id)
        with pytest.raises(NotFound):
            await world.system.tasks.run_now("never")

    run(main())


def test_a_failed_run_says_so_to_its_handle(world: World, run: Go) -> None:
    @world.registry.task("bad", queue="push", retry=RetryPolicy(max_attempts=1))
    def bad() -> None:
        raise OSError("disk")

    async def main() -> None:
        handle = await bad.call()
        await world.work()
        with pytest.raises(TaskFailed, match="disk"):
            await handle.result(1)

    run(main())
