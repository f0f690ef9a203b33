"""A limit of attempts means the same everywhere: so many starts in all, the first one too, whatever brings the task."""

import asyncio

import pytest

from tally.retry import RetryPolicy
from tally.tasks.context import Retry
from tally.tasks.run import State
from tally.tasks.task import Task
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.sending import URL, World

LIMITS = [1, 2, 5]


@pytest.fixture
def world() -> World:
    return World()


def policy(attempts: int) -> RetryPolicy:
    return RetryPolicy(max_attempts=attempts, min_backoff=5, max_backoff=5)


@pytest.mark.parametrize("attempts", LIMITS)
@pytest.mark.parametrize("queue", ["push", "pull"])
@pytest.mark.parametrize("by", ["the function", "the call"])
@pytest.mark.parametrize("error", [ValueError(), Retry()], ids=["an error", "Retry"])
def test_a_function_starts_as_often_as_its_limit_says(
    world: World, run: Go, attempts: int, queue: str, by: str, error: Exception
) -> None:
    starts: list[int] = []

    @world.registry.task("t", queue=queue, retry=policy(attempts if by == "the function" else 9))
    async def t() -> None:
        starts.append(world.now)
        raise error

    async def main() -> None:
        handle = await t.later(retry=policy(attempts) if by == "the call" else None).call()
        await world.work(60)
        status = await handle.status()
        assert (status.state, status.attempt, status.counted) == (State.FAILED, attempts, attempts)
        assert [parked.reason async for parked in world.system.tasks.parked()] == ["exhausted"]

    run(main())
    assert len(starts) == attempts


@pytest.mark.parametrize("attempts", LIMITS)
def test_a_request_is_sent_as_often_as_its_limit_says(world: World, run: Go, attempts: int) -> None:
    async def main() -> None:
        world.status = 500
        await world.queue.add(Task(retry=policy(attempts)), url=URL)
        await world.work(60)
        assert len(world.sent) == attempts
        assert (await world.queue.stats()).tasks == 0

    run(main())


@pytest.mark.parametrize("attempts", LIMITS)
@pytest.mark.parametrize("ends", ["released with an error", "its lease ran out"])
def test_a_task_is_leased_as_often_as_its_limit_says(world: World, run: Go, attempts: int, ends: str) -> None:
    async def main() -> None:
        queue = world.system.pull("leased")
        await queue.add(Task(name="a", retry=policy(attempts)))
        counted = []
        for _ in range(attempts + 3):
            for lease in await queue.lease(seconds=5):
                counted.append(lease.attempt)
                if ends == "released with an error":
                    await queue.release(lease, error="bang")
            await asyncio.sleep(6)
        assert counted == list(range(1, attempts + 1))
        (dead,) = await queue.list("dead")
        assert dead.attempts == attempts

    run(main())


def test_what_a_queue_delivers_twice_is_no_second_attempt(world: World, run: Go) -> None:
    """The queue's own count, of leases here, is not the run's: a copy of a delivery starts nothing."""
    starts: list[int] = []

    @world.registry.task("t", queue="pull", retry=policy(2))
    async def t() -> None:
        starts.append(world.now)
        raise ValueError

    async def main() -> None:
        handle = await t.call()
        queue = world.system.pull("pull")
        for _ in range(3):
            (lease,) = await queue.lease()
            await queue.release(lease)
        await world.work(30)
        status = await handle.status()
        assert (len(starts), status.attempt, status.state) == (2, 2, State.FAILED)

    run(main())
