"""What a task may know and tell while it runs."""

import asyncio

import pytest

from tally.errors import InvalidInput
from tally.retry import RetryPolicy
from tally.tasks.context import Context, current, progress
from tests.unit.tasks.calls import World
from tests.unit.tasks.conftest import Go


def test_the_context_tells_what_a_task_may_know(world: World, run: Go) -> None:
    seen: list[Context] = []

    @world.registry.task("c", queue="q", timeout=50)
    async def c(x: int) -> float:
        seen.append(current())
        await asyncio.sleep(20)
        return current().left()

    async def main() -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        handle = await c.later(headers={"traceparent": trace}).call(4)
        await world.work()
        assert await handle.result(1) == pytest.approx(30)
        context = seen[0]
        assert (context.name, context.attempt, context.queue, context.worker) == ("c", 1, "q", "w1")
        assert (context.trace, context.arguments, context.id) == (trace, {"x": 4}, handle.id)

    run(main())


def test_there_is_no_context_outside_a_task() -> None:
    with pytest.raises(InvalidInput, match="no task runs here"):
        current()


def test_progress_is_seen_while_the_task_runs(world: World, run: Go) -> None:
    @world.registry.task("p")
    async def p() -> None:
        for done in range(10):
            progress({"done": done})
            await asyncio.sleep(10)

    async def main() -> None:
        handle = await p.call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(55)
        assert bytes((await handle.status()).progress) == b'{"done":5}'
        await working
        assert bytes((await handle.status()).progress) == b'{"done":9}'

    run(main())


def test_progress_has_a_limit(world: World, run: Go) -> None:
    @world.registry.task("p", retry=RetryPolicy(max_attempts=1))
    async def p() -> None:
        progress("x" * 4_000)

    async def main() -> None:
        handle = await p.call()
        await world.work()
        assert "4000" in (await handle.status()).error

    run(main())
