"""Run now on push queues, of requests and of calls: whatever state they are in, and whichever way they came."""

import asyncio
from typing import Any

import pytest

from tally.errors import NotFound
from tally.retry import RetryPolicy
from tally.tasks.deferred import DAY
from tally.tasks.run import State
from tally.tasks.task import Task
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.sending import URL, World

LATER = 200.0  # seconds


@pytest.fixture
def world() -> World:
    return World()


# Requests to a URL


@pytest.mark.parametrize(
    "delay", [LATER, 40 * DAY, 400 * DAY], ids=["the service holds it", "a call holds it", "many hops away"]
)
def test_a_request_before_its_time_is_sent_once_now_and_never_again(world: World, run: Go, delay: float) -> None:
    async def main() -> None:
        await world.add(delay=delay)
        assert await world.queue.run_now("a")
        await world.work(30)
        assert world.sent in ([0], [1])
        assert not await world.queue.run_now("a")
        await world.work(LATER)
        assert len(world.sent) == 1

    run(main())


def test_a_request_of_a_paused_queue_is_sent_alone_and_the_pause_stays(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add()
        await world.queue.add(Task(name="b"), url=URL)
        await world.queue.pause()
        assert await world.queue.run_now("a")
        await world.work(60)
        assert len(world.sent) == 1
        stats = await world.queue.stats()
        assert (stats.paused, stats.tasks) == (True, 1)

    run(main())


def test_a_request_that_is_under_way_is_not_sent_beside_itself(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 20
        await world.add()
        working = asyncio.ensure_future(world.work(60))
        await asyncio.sleep(10)
        assert await world.queue.run_now("a")  # it is there: the service says no more
        await working
        assert len(world.sent) == 1
        assert (await world.queue.stats()).tasks == 0

    run(main())


def test_a_request_that_waits_for_its_next_attempt_has_it_now(world: World, run: Go) -> None:
    async def main() -> None:
        world.status = 500
        await world.add(retry=RetryPolicy(min_backoff=LATER, max_backoff=LATER))
        await world.work(30)
        world.status = 200
        assert await world.queue.run_now("a")
        await world.work(2 * LATER)
        assert [round(at, -1) for at in world.sent] == [0, 30]

    run(main())


@pytest.mark.parametrize("gone", ["done", "deleted", "purged", "never there"])
def test_a_request_that_is_no_more_is_not_brought_back(world: World, run: Go, gone: str) -> None:
    async def main() -> None:
        if gone != "never there":
            await world.add(delay=0 if gone == "done" else 60)
        if gone == "deleted":
            await world.queue.delete("a")
        elif gone == "purged":
            await world.queue.purge()
        await world.work(30)
        sent = len(world.sent)
        assert not await world.queue.run_now("a")
        await world.work(120)
        assert len(world.sent) == sent == (gone == "done")

    run(main())


def test_a_second_request_of_the_name_is_refused_before_and_after_the_first_was_run_now(world: World, run: Go) -> None:
    async def main() -> None:
        assert await world.add(delay=LATER) == "added"
        assert await world.add() == "exists"
        assert await world.queue.run_now("a")
        assert await world.queue.run_now("a")  # twice is as once
        assert await world.add() == "exists"
        await world.work(30)
        assert await world.add() == "exists"
        await world.work(LATER)
        assert len(world.sent) == 1

    run(main())


# Calls of functions


@pytest.fixture
def starts(world: World) -> list[int]:
    """Register `work`, which takes its time and fails at first if it is told so; give the instants of its starts."""
    starts: list[int] = []

    @world.registry.task("work", queue="push", retry=RetryPolicy(min_backoff=LATER, max_backoff=LATER))
    async def work(takes: float = 0, fails: int = 0) -> int:
        starts.append(world.now)
        await asyncio.sleep(takes)
        if len(starts) <= fails:
            raise ValueError
        return len(starts)

    return starts


def test_a_call_that_runs_or_has_run_is_not_started_again(world: World, run: Go, starts: list[int]) -> None:
    async def main() -> None:
        handle = await world.registry.functions["work"].call(takes=20)
        working = asyncio.ensure_future(world.work(60))
        await asyncio.sleep(10)
        assert not await world.system.tasks.run_now(handle.id)
        await working
        assert await handle.result(1) == 1
        assert not await world.system.tasks.run_now(handle.id)
        await world.work(60)
        assert len(starts) == 1
        with pytest.raises(NotFound):
            await world.system.tasks.run_now("no such run")

    run(main())


def test_a_call_of_a_paused_queue_before_its_time_is_started(world: World, run: Go, starts: list[int]) -> None:
    async def main() -> None:
        work = world.registry.functions["work"]
        handle = await work.later(delay=LATER, name="one").call()
        again = await work.later(name="one").call()
        assert (again.id, again.created) == (handle.id, False)
        await world.queue.pause()
        assert await world.system.tasks.run_now(again.id)
        await world.work(60)
        assert await handle.result(1) == 1
        await world.queue.resume()
        await world.work(LATER)
        assert len(starts) == 1

    run(main())


async def _by_call(world: World, queue: str) -> str:
    return (await world.registry.functions["work"].later(delay=LATER, queue=queue).call(fails=1)).id


async def _by_outbox(world: World, queue: str) -> str:
    box = world.system.outbox()
    entry = box.entry(queue, world.registry.functions["work"].later(delay=LATER).task(fails=1))
    await world.store.commit([entry.write])
    assert await box.drain([entry.id]) == 1
    return f"outbox-{entry.id}"


async def _by_outbox_and_name(world: World, queue: str) -> str:
    box = world.system.outbox()
    entry = box.entry(queue, world.registry.functions["work"].later(delay=LATER, name="one").task(fails=1))
    await world.store.commit([entry.write])
    assert await box.drain([entry.id]) == 1
    return "one"


@pytest.mark.parametrize("queue", ["push", "pull"])
@pytest.mark.parametrize("enqueue", [_by_call, _by_outbox, _by_outbox_and_name])
def test_a_call_is_run_now_before_its_time_and_before_its_next_attempt_whichever_way_it_came(
    world: World, run: Go, starts: list[int], enqueue: Any, queue: str
) -> None:
    async def main() -> None:
        run_id = await enqueue(world, queue)
        await world.work(30)
        assert not starts
        assert await world.system.tasks.run_now(run_id)
        await world.work(30)
        status = await world.system.tasks.handle(run_id).status()
        assert (status.state, len(starts)) == (State.WAITING, 1)
        assert await world.system.tasks.run_now(run_id)
        await world.work(30)
        assert (await world.system.tasks.handle(run_id).status()).state is State.DONE
        await world.work(LATER)
        assert len(starts) == 2

    run(main())


@pytest.mark.parametrize("queue", ["push", "pull"])
@pytest.mark.parametrize("enqueue", [_by_outbox, _by_outbox_and_name])
def test_a_call_of_the_outbox_is_seen_and_cancelled_before_it_ran(
    world: World, run: Go, starts: list[int], enqueue: Any, queue: str
) -> None:
    async def main() -> None:
        handle = world.system.tasks.handle(await enqueue(world, queue))
        status = await handle.status()
        assert (status.state, status.call, status.queue) == (State.QUEUED, "work", queue)
        assert await handle.cancel()
        await world.work(2 * LATER)
        assert not starts

    run(main())


def test_a_task_of_the_outbox_that_is_no_call_has_no_run(world: World, run: Go) -> None:
    async def main() -> None:
        box = world.system.outbox()
        entry = box.entry("leased", Task.json({"to": 7}))
        await world.store.commit([entry.write])
        assert await box.drain([entry.id]) == 1
        with pytest.raises(NotFound):
            await world.system.tasks.handle(f"outbox-{entry.id}").status()
        assert len(await world.system.pull("leased").lease()) == 1

    run(main())
