"""Calls that fail: what is tried again and when, what is parked, and what is replayed."""

import asyncio
from itertools import pairwise

import pytest

from tally.clock import SECOND
from tally.errors import NotFound, TaskFailed
from tally.retry import RetryPolicy
from tally.tasks.call import Delivery
from tally.tasks.context import Discard, Retry, current
from tally.tasks.deferred import Registry
from tally.tasks.run import State
from tests.unit.tasks.calls import World, counted
from tests.unit.tasks.conftest import Go

FAST = RetryPolicy(max_attempts=3, min_backoff=1.0, max_backoff=10.0)


def test_a_failure_is_retried_by_the_policy_and_then_parked_with_its_traceback(world: World, run: Go) -> None:
    starts: list[float] = []

    @world.registry.task("bad", retry=FAST)
    async def bad() -> None:
        starts.append(world.clock.now() / SECOND)
        raise ValueError("é" * 1_501 + " no")

    async def main() -> None:
        handle = await bad.call()
        await world.work()
        status = await handle.status()
        assert status.state is State.FAILED
        assert [attempt.outcome for attempt in status.attempts] == ["failed", "failed", "failed"]
        assert "no" in status.error
        assert "in bad" in status.traceback
        assert [round(b - a, 3) for a, b in pairwise(starts)] == [1.0, 2.0]
        with pytest.raises(TaskFailed, match=r"bad .* failed: ValueError") as caught:
            await handle.result(1)
        assert "ValueError" in caught.value.traceback
        assert await world.parked() == [("bad", "exhausted")]

    run(main())


def test_a_replayed_call_runs_again_with_its_history(world: World, run: Go) -> None:
    broken = True

    @world.registry.task("fix", retry=RetryPolicy(max_attempts=1))
    async def fix(x: int) -> int:
        if broken:
            raise ValueError
        return x

    async def main() -> None:
        nonlocal broken
        handle = await fix.call(7)
        await world.work()
        broken = False
        again = await world.tasks.replay(handle.id)
        await world.work()
        assert await again.result(1) == 7
        assert (await again.status()).attempt == 2
        assert await world.parked() == []
        with pytest.raises(NotFound):
            await world.tasks.replay(handle.id)

    run(main())


def test_retry_asks_for_another_run_at_a_time_of_its_own(world: World, run: Go) -> None:
    seen: list[tuple[int, int]] = []

    @world.registry.task("later", retry=FAST)
    async def later() -> str:
        seen.append((current().attempt, world.clock.now() // SECOND))
        if len(seen) < 3:
            raise Retry("not ready", after=100, counts=False)
        return "ok"

    async def main() -> None:
        handle = await later.call()
        await world.work()
        assert await handle.result(1) == "ok"
        assert [attempt for attempt, _ in seen] == [1, 2, 3]
        assert seen[2][1] - seen[0][1] == 200
        assert [attempt.outcome for attempt in (await handle.status()).attempts] == ["retry", "retry", "done"]

    run(main())


def test_retry_that_counts_meets_the_limit(world: World, run: Go) -> None:
    @world.registry.task("later", retry=FAST)
    async def later() -> None:
        raise Retry(after=1)

    async def main() -> None:
        handle = await later.call()
        await world.work()
        assert (await handle.status()).attempt == 3
        assert await world.parked() == [("later", "exhausted")]

    run(main())


def test_discard_ends_a_run_without_retry_or_dead_letter(world: World, run: Go) -> None:
    @world.registry.task("drop")
    async def drop() -> None:
        raise Discard("user is gone")

    async def main() -> None:
        handle = await drop.call()
        await world.work()
        status = await handle.status()
        assert (status.state, status.error, status.attempt) == (State.DISCARDED, "user is gone", 1)
        assert await world.parked() == []

    run(main())


def test_a_fatal_error_is_not_retried(world: World, run: Go) -> None:
    @world.registry.task("f", fatal=(KeyError,))
    async def f() -> None:
        raise KeyError("x")

    async def main() -> None:
        handle = await f.call()
        await world.work()
        assert (await handle.status()).attempt == 1
        assert await world.parked() == [("f", "fatal")]

    run(main())


def test_only_the_named_errors_are_retried(world: World, run: Go) -> None:
    @world.registry.task("f", retry=FAST, retry_for=(ConnectionError,), fatal=lambda error: "never" in str(error))
    async def f(message: str) -> None:
        raise ValueError(message) if message == "wrong" else ConnectionResetError(message)

    async def main() -> None:
        attempts = []
        for message in ("busy", "never again", "wrong"):
            handle = await f.call(message)
            await world.work()
            attempts.append((await handle.status()).attempt)
        assert attempts == [3, 1, 1]
        assert sorted(reason for _, reason in await world.parked()) == ["exhausted", "fatal", "fatal"]

    run(main())


def test_an_error_that_is_no_failure_uses_up_no_attempt_and_is_not_tried_ever_so_fast(world: World, run: Go) -> None:
    starts: list[int] = []

    @world.registry.task("f", retry=FAST, uncounted=(ConnectionError,))
    async def f() -> None:
        starts.append(world.clock.now() // SECOND)
        raise ConnectionError if len(starts) <= 6 else ValueError

    async def main() -> None:
        handle = await f.call()
        await world.work()
        status = await handle.status()
        assert (status.attempt, status.state) == (9, State.FAILED)  # six that are free, three that count
        assert [b - a for a, b in pairwise(starts)] == [1, 2, 4, 8, 10, 10, 1, 2]

    run(main())


def test_a_retry_that_uses_up_no_attempt_is_not_tried_ever_so_fast(world: World, run: Go) -> None:
    starts: list[int] = []

    @world.registry.task("f", retry=FAST)
    async def f() -> None:
        starts.append(world.clock.now() // SECOND)
        if len(starts) <= 6:
            raise Retry(counts=False)

    async def main() -> None:
        await f.call()
        await world.work()
        assert [b - a for a, b in pairwise(starts)] == [1, 2, 4, 8, 10, 10]

    run(main())


def test_retry_is_no_error_to_the_functions_rules(world: World, run: Go) -> None:
    @world.registry.task("f", retry=FAST, fatal=(Exception,), retry_for=())
    async def f() -> str:
        if current().attempt < 3:
            raise Retry(after=1)
        return "ok"

    async def main() -> None:
        handle = await f.call()
        await world.work()
        assert await handle.result(1) == "ok"

    run(main())


def test_an_unknown_task_is_tried_for_a_while_then_parked_and_replayed_after_the_deploy(world: World, run: Go) -> None:
    old = Registry()

    @old.task("moved")
    async def moved(x: int) -> int:
        return x

    async def main() -> None:
        old.connect(world.tasks)
        handle = await moved.call(3)
        await world.work()
        status = await handle.status()
        assert (status.state, status.attempt) == (State.PARKED, 5)
        assert "'moved'" in status.error
        assert await world.parked() == [("moved", "unknown or undecodable")]
        with pytest.raises(TaskFailed):
            await handle.result(1)
        world.registry.functions["moved"] = moved
        await world.tasks.replay(handle.id)
        await world.work()
        assert await handle.result(1) == 3

    run(main())


@pytest.mark.parametrize(
    "payload", [b"", b"\x80\x04cposix\nsystem\n.", b'{"v":2,"call":"x"}', b'{"v":1}', b"[" * 100_000]
)
def test_what_is_no_call_is_parked_at_once(world: World, run: Go, payload: bytes) -> None:
    async def main() -> None:
        await world.line.carry(Delivery(queue="q", id="i", payload=payload))
        await world.work()
        [parked] = [parked async for parked in world.tasks.parked()]
        assert (parked.payload, parked.reason) == (payload, "undecodable")
        assert (await world.tasks.handle("i").status()).state is State.PARKED

    run(main())


def test_an_expired_call_is_parked_and_does_not_run(world: World, run: Go) -> None:
    t, runs = counted(world.registry)

    async def main() -> None:
        handle = await t.later(expires=10).call()
        await asyncio.sleep(11)
        await world.work()
        assert not runs
        assert (await handle.status()).state is State.FAILED
        assert await world.parked() == [("t", "expired")]

    run(main())
