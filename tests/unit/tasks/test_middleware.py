"""Middleware around the runs of a worker."""

from typing import Any

from tally.retry import RetryPolicy
from tally.tasks.context import Context
from tally.tasks.middleware import Middleware
from tests.unit.tasks.calls import World
from tests.unit.tasks.conftest import Go


def test_middleware_sees_every_run_and_cannot_break_it(world: World, run: Go) -> None:
    log: list[str] = []

    class Log(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def before(self, context: Context) -> None:
            log.append(f"{self.name} before {context.name}")

        def after(self, context: Context, result: Any) -> None:
            log.append(f"{self.name} after {result}")
            raise RuntimeError("ignored")

        def on_error(self, context: Context, error: BaseException) -> None:
            log.append(f"{self.name} error {error!r}")

    world.registry.use(Log("a"))
    world.registry.use(Log("b"))

    @world.registry.task("ok")
    async def ok() -> int:
        return 1

    @world.registry.task("bad", retry=RetryPolicy(max_attempts=1))
    async def bad() -> None:
        raise ValueError("x")

    async def main() -> None:
        handle = await ok.call()
        await bad.call()
        await world.work()
        assert await handle.result(1) == 1

    run(main())
    assert log == [
        "a before ok",
        "b before ok",
        "b after 1",
        "a after 1",
        "a before bad",
        "b before bad",
        "b error ValueError('x')",
        "a error ValueError('x')",
    ]
