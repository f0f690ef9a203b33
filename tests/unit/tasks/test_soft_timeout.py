"""A soft limit is raised inside an async function, once, and only while it runs; what means nothing is refused."""

import asyncio

import pytest

from tally.errors import InvalidInput
from tally.retry import RetryPolicy
from tally.tasks.context import Retry, SoftTimeout
from tally.tasks.deferred import Options, Registry
from tally.tasks.run import State
from tally.tasks.soft_timeout import limited
from tests.unit.tasks.calls import World
from tests.unit.tasks.conftest import Go

ONCE = RetryPolicy(max_attempts=1)


def test_an_async_function_ends_in_order_and_its_result_counts(world: World, run: Go) -> None:
    @world.registry.task("t", soft_timeout=5, timeout=60)
    async def t() -> str:
        try:
            await asyncio.sleep(600)
        except SoftTimeout:
            await asyncio.sleep(7)  # there is time until `timeout`
        return f"tidy after {asyncio.get_running_loop().time() - begun:g} s"

    begun = 0.0

    async def main() -> None:
        nonlocal begun
        begun = asyncio.get_running_loop().time()
        handle = await t.call()
        await world.work()
        assert await handle.result(1) == "tidy after 12 s"

    run(main())


def test_who_does_not_catch_it_has_failed_by_a_timeout_and_is_retried_by_the_policy(world: World, run: Go) -> None:
    found: list[str] = []

    @world.registry.task("t", soft_timeout=5, retry=RetryPolicy(max_attempts=2))
    async def t() -> None:
        try:
            await asyncio.sleep(600)
        except Exception:  # as code does that retries whatever went wrong
            found.append("swallowed")
        found.append("went on")

    async def main() -> None:
        handle = await t.call()
        await world.work()
        status = await handle.status()
        assert (status.state, status.attempt, status.attempts[0].outcome) == (State.FAILED, 2, "failed")
        assert status.error == "TimeoutError: the task took more than 5 s, its soft limit"
        assert await world.parked() == [("t", "exhausted")]

    run(main())
    assert found == []


def test_a_retry_raised_on_it_is_a_retry(world: World, run: Go) -> None:
    @world.registry.task("t", soft_timeout=5, retry=ONCE)
    async def t() -> int:
        try:
            await asyncio.sleep(600 if len(starts) == 0 else 1)
        except SoftTimeout:
            starts.append(1)
            raise Retry(after=0, counts=False) from None
        return 7

    starts: list[int] = []

    async def main() -> None:
        handle = await t.call()
        await world.work()
        assert await handle.result(1) == 7

    run(main())


def test_the_hard_limit_still_comes_and_is_a_cancellation(world: World, run: Go) -> None:
    found: list[type[BaseException]] = []

    @world.registry.task("t", soft_timeout=5, timeout=20, retry=ONCE)
    async def t() -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(600)
            except BaseException as error:
                found.append(type(error))

    async def main() -> None:
        begun = asyncio.get_running_loop().time()
        handle = await t.call()
        await world.work()
        assert asyncio.get_running_loop().time() - begun == 20
        assert "more than 20 s" in (await handle.status()).error

    run(main())
    assert found == [SoftTimeout, asyncio.CancelledError]


def test_what_comes_after_it_in_the_same_task_never_sees_it(run: Go) -> None:
    async def quick() -> int:
        await asyncio.sleep(2)
        return 1

    async def main() -> int:
        result: int = await limited(quick, 3)()
        await asyncio.sleep(10)
        return result

    assert run(main()) == 1


def test_what_ends_before_it_never_sees_it(world: World, run: Go) -> None:
    @world.registry.task("t", soft_timeout=5)
    async def t() -> int:
        await asyncio.sleep(4)
        return 1

    async def main() -> None:
        handle = await t.call()
        await world.work()
        await asyncio.sleep(10)
        assert await handle.result(1) == 1

    run(main())


def test_the_children_of_a_task_group_are_cancelled_by_it(run: Go) -> None:
    found: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError as error:
            found.append(type(error).__name__)
            raise

    async def parent() -> str:
        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(child())
                group.create_task(child())
        except SoftTimeout:
            return "in order"
        return "not at all"

    assert run(limited(parent, 3)()) == "in order"
    assert found == ["CancelledError"] * 2


@pytest.mark.parametrize("ends_at", [2, 3, 4])
def test_a_cancellation_by_others_is_none_of_ours_even_at_the_same_instant(run: Go, ends_at: int) -> None:
    found: list[type[BaseException]] = []

    async def long() -> None:
        try:
            await asyncio.sleep(600)
        except SoftTimeout:
            found.append(SoftTimeout)
            await asyncio.sleep(600)

    async def main() -> None:
        task = asyncio.ensure_future(limited(long, 3)())
        asyncio.get_running_loop().call_later(ends_at, task.cancel)
        outcomes: list[object] = await asyncio.gather(task, return_exceptions=True)
        assert type(outcomes[0]) is asyncio.CancelledError

    run(main())
    assert found == [SoftTimeout] * (ends_at > 3)


def test_what_it_awaits_may_cancel_itself_and_fail_as_ever(run: Go) -> None:
    async def wraps() -> list[str]:
        found = []
        for error in (asyncio.CancelledError(), ValueError("v")):
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(1, future.set_exception, error)
            try:
                await future
            except BaseException as caught:
                found.append(type(caught).__name__)
        return found

    assert run(limited(wraps, 30)()) == ["CancelledError", "ValueError"]


def test_what_a_child_makes_of_its_cancellation_is_what_is_found(run: Go) -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            raise ValueError("of my own") from None

    async def parent() -> None:
        with pytest.raises(ValueError, match="of my own"):
            await asyncio.ensure_future(stubborn())

    run(limited(parent, 3)())


def test_without_a_limit_a_function_is_what_it_is() -> None:
    def plain() -> None: ...

    assert limited(plain, None) is plain


@pytest.mark.parametrize(("soft", "hard"), [(0, 5), (-1, 5), (5, 5), (6, 5), (float("nan"), 5)])
def test_a_limit_that_means_nothing_is_refused(soft: float, hard: float) -> None:
    with pytest.raises(InvalidInput, match="soft_timeout"):
        Options(soft_timeout=soft, timeout=hard)
    with pytest.raises(InvalidInput, match="soft_timeout"):
        Registry().task("t", soft_timeout=soft, timeout=hard)
