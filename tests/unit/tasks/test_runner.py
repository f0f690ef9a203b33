"""The life of a call, from its enqueue to its result, on fakes and in virtual time."""

import asyncio
from typing import Any

import pytest

from tally.clock import SECOND
from tally.errors import InvalidInput, NotFound
from tally.retry import RetryPolicy
from tally.tasks.run import State
from tests.unit.tasks.calls import World
from tests.unit.tasks.conftest import Go


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_call_runs_and_its_result_is_there(world: World, run: Go, kind: str) -> None:
    async def add_async(a: int, b: int = 1) -> int:
        return a + b

    def add(a: int, b: int = 1) -> int:
        return a + b

    deferred = world.registry.task("add")(add_async if kind == "async" else add)

    async def main() -> None:
        handle = await deferred.call(2, b=3)
        assert (await handle.status()).state is State.QUEUED
        await world.work()
        assert await handle.result(1) == 5
        status = await handle.status()
        assert (status.state, status.attempt, status.attempts[0].worker) == (State.DONE, 1, "w1")
        assert status.attempts[0].ended is not None

    run(main())


def test_delay_and_eta_are_kept(world: World, run: Go) -> None:
    started: list[int] = []

    @world.registry.task("t")
    async def t() -> None:
        started.append(world.clock.now())

    async def main() -> None:
        begin = world.clock.now()
        await t.later(delay=3600).call()
        await world.work()
        assert started == [begin + 3600 * SECOND]

    run(main())


def test_a_timeout_fails_the_attempt(world: World, run: Go) -> None:
    @world.registry.task("slow", timeout=5, retry=RetryPolicy(max_attempts=1))
    async def slow() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        handle = await slow.call()
        begin = world.clock.now()
        await world.work()
        assert (await handle.status()).error.startswith("TimeoutError")
        assert world.clock.now() - begin == 5 * SECOND

    run(main())


def test_a_result_that_cannot_be_written_fails_the_run_once(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("odd")
    async def odd() -> Any:
        nonlocal ran
        ran += 1
        return object()

    async def main() -> None:
        handle = await odd.call()
        await world.work()
        assert "the result of" in (await handle.status()).error
        assert ran == 1

    run(main())


@pytest.mark.parametrize("size", [0, 199_000, 200_001, 899_999, 900_001, 7_900_000])
def test_arguments_and_results_of_any_size_travel(world: World, run: Go, size: int) -> None:
    @world.registry.task("echo")
    async def echo(text: str) -> str:
        return text

    async def main() -> None:
        text = "x" * size
        handle = await echo.call(text)
        assert len(world.line.waiting[0][2].payload) < 300_000
        await world.work()
        assert await handle.result(1) == text
        await handle.forget()
        with pytest.raises(NotFound):
            await handle.status()

    run(main())


def test_arguments_past_the_limit_are_refused(world: World, run: Go) -> None:
    @world.registry.task("echo")
    async def echo(text: str) -> None: ...

    async def main() -> None:
        with pytest.raises(InvalidInput, match="11200000"):
            await echo.call("x" * 11_200_000)
        assert not world.line.waiting

    run(main())


@pytest.mark.parametrize(("keep", "gone"), [(0, 3_600), (7_200, 7_200), (None, None)])
def test_a_record_lives_as_long_as_it_is_kept(world: World, run: Go, keep: float | None, gone: int | None) -> None:
    @world.registry.task("t", keep=keep)
    async def t() -> int:
        return 1

    async def main() -> None:
        handle = await t.call()
        await world.work()
        await asyncio.sleep(10**9 if gone is None else gone - 1)
        assert await handle.result(1) == 1
        assert await world.tasks.runs.sweep() == 0
        if gone is not None:
            await asyncio.sleep(1)
            with pytest.raises(NotFound):
                await handle.result(1)
            assert await world.tasks.runs.sweep() == 1
            assert not world.store.entities

    run(main())


def test_what_a_large_run_left_goes_after_its_record(world: World, run: Go) -> None:
    @world.registry.task("t", keep=3_600)
    async def t(text: str) -> str:
        return text

    async def main() -> None:
        await t.call("x" * 300_000)
        await world.work()
        await asyncio.sleep(4 * 3_600)
        assert await world.tasks.runs.sweep() == 2, "the record and its result"
        assert await world.tasks.runs.sweep() == 0
        await asyncio.sleep(63 * 86_400)
        assert await world.tasks.runs.sweep() == 1, "the arguments, once no delivery can ask for them"
        assert not world.store.entities

    run(main())


def test_a_task_forgotten_while_it_runs_ends_quietly(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t() -> None:
        await asyncio.sleep(5)

    async def main() -> None:
        handle = await t.call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(1)
        await handle.forget()
        await working
        with pytest.raises(NotFound):
            await handle.status()

    run(main())
