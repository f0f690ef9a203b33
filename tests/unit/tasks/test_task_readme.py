"""The examples of the README about task functions, push queues and the pool, as they stand there."""

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tally.tasks import deferred
from tally.tasks.client import Tasks
from tally.tasks.context import Retry
from tally.tasks.deferred import registry
from tally.tasks.pace import Bounds
from tally.tasks.push import Target
from tally.tasks.run import State
from tally.tasks.semaphore import Concurrent
from tally.tasks.system import TaskSystem
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.dispatcher import FakeDispatcher
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore

README = (Path(deferred.__file__).parent / "README.md").read_text()


async def example(name: str, **names: Any) -> dict[str, Any]:
    """Run an example with some names given to it; return what it defined."""
    found = re.search(rf"<!-- runs as a test: {name} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    code = compile(found[1], f"README.md:{name}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names["__name__"] = "readme"
    running = eval(code, names)
    if running is not None:
        await running
    return names


@pytest.fixture(autouse=True)
def own_functions() -> Iterator[None]:
    before = dict(registry.functions)
    yield
    registry.functions.clear()
    registry.functions.update(before)


async def test_the_deferred_example_runs(tally_eager: Tasks) -> None:
    answers = ["ok", "ok", "busy", "ok"]

    async def deliver(address: str, order: int) -> str:
        return answers.pop(0) if answers else "unknown"

    names = await example("deferred", deliver=deliver)
    assert names["sent"] == 1
    send_receipt = names["send_receipt"]
    assert await (await send_receipt.call(9, ["x"])).result(0) == 2
    assert (await (await send_receipt.call(9, ["x"])).status()).state is State.DISCARDED


async def test_the_concurrent_example_runs(tally_eager: Tasks) -> None:
    fetched: list[str] = []

    async def fetch(url: str) -> None:
        fetched.append(url)

    names = await example("concurrent", fetch=fetch)
    await names["import_feed"].call("c", "https://feed.example/")
    assert fetched == ["https://feed.example/"]
    assert registry.functions["feed.import"].options.limit == Concurrent("customer-{customer}", 4)


def test_the_gather_example_runs(
    tally_loop: VirtualLoop, tally_backend: FakeBackend, tally_clock: VirtualClock
) -> None:
    posted: list[tuple[str, str]] = []

    async def post(reader: str, text: str) -> None:
        posted.append((reader, text))

    async def main() -> None:
        system = TaskSystem(registry, tally_backend.store, clock=tally_clock, random=Random(1), shards=1)
        registry.connect(system.tasks)
        await example("gather", post=post)
        beside = asyncio.ensure_future(system.sweeper(["mail"]).run())
        stop = asyncio.Event()
        working = asyncio.ensure_future(system.executor({"mail": 1}, bounds=Bounds()).run(stop))
        await asyncio.sleep(60)
        assert posted == [("reader-7", "Ann answered you\nBob, too")]
        stop.set()
        beside.cancel()
        await working

    tally_loop.run(main())


async def test_the_defer_example_runs(tally_eager: Tasks) -> None:
    seen: list[str] = []

    def ready(image: str) -> bool:
        seen.append(image)
        return len(seen) > 1

    await example("defer", ready=ready, task=deferred.task, Retry=Retry)
    assert seen == ["cat.png", "cat.png"]


async def test_the_push_example_runs() -> None:
    clock = VirtualClock()
    dispatcher = FakeDispatcher(clock)
    system = TaskSystem(
        registry,
        FakeStore(),
        clock=clock,
        random=Random(1),
        dispatcher=dispatcher,
        target=Target(url="https://run.example"),
        pushed=frozenset({"mail"}),
    )
    names = await example("push", system=system)
    assert len(dispatcher.tasks) == 251
    assert {outcome.status for outcome in names["outcomes"]} == {"added"}


async def test_the_pool_example_runs() -> None:
    closed: list[Any] = []

    async def fetch(url: str) -> str:
        return url

    names = await example(
        "pool",
        connect=lambda: SimpleNamespace(store=lambda row: row),
        disconnect=closed.append,
        fetch=fetch,
    )
    assert names["future"].result() == "row 1"
    assert names["stored"] == "https://a.example/"
    assert closed
    assert names["rest"] == []
