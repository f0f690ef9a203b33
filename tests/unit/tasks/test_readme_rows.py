"""Every row of the README's tables works: each names the tests that show it. What no other test shows is shown here."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tally.clock import from_datetime
from tally.retry import RetryPolicy
from tally.tasks import deferred
from tally.tasks.context import Discard, Retry, current
from tally.tasks.run import State
from tally.tasks.task import Task
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.executing import World
from tests.unit.tasks.readme_rows import ROWS

ROOT = Path(__file__).parents[3]
README = Path(deferred.__file__).with_name("README.md")


def rows() -> list[str]:
    """Return the first cell of every row of the README's tables, without their headings."""
    lines = README.read_text(encoding="utf-8").splitlines()
    ruled = [at for at, line in enumerate(lines) if line.startswith("|--")]
    found = []
    for at in ruled:
        for line in lines[at + 1 :]:
            if not line.startswith("|"):
                break
            found.append(re.split(r"(?<!\\)\|", line)[1].strip())
    return found


def test_every_row_has_its_tests() -> None:
    assert len(rows()) == len(set(rows()))
    assert set(rows()) == set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_the_tests_of_a_row_are_there(row: str) -> None:
    assert ROWS[row]
    for named in ROWS[row]:
        file, _, test = named.partition("::")
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), named


@pytest.fixture
def world() -> World:
    return World()


def test_a_task_tells_its_size_its_time_and_that_it_is_in(world: World, run: Go) -> None:
    async def main() -> None:
        queue = world.system.pull("mail")
        eta = datetime(2020, 2, 29, 12, 0, tzinfo=UTC)
        outcome = await queue.add(Task(payload=b"abc", eta=eta))
        (lease,) = await queue.lease(1)
        assert (len(lease.task.payload), outcome.status) == (3, "added")
        assert lease.task.eta is not None
        assert lease.task.eta.timestamp() == eta.timestamp() == from_datetime(eta) / 1e6

    run(main())


def test_a_lease_counts_from_one(world: World, run: Go) -> None:
    async def main() -> None:
        queue = world.system.pull("mail")
        await queue.add(Task())
        attempts = []
        for _ in range(3):
            (lease,) = await queue.lease(1)
            attempts.append(lease.attempt)
            await queue.release(lease, delay=0)
        assert attempts == [1, 2, 3]

    run(main())


def test_the_options_of_a_call_override_its_functions(world: World, run: Go) -> None:
    tried: list[str] = []

    @world.registry.task("t", queue="slow", retry=RetryPolicy(max_attempts=9, min_backoff=1.0))
    async def t(name: str) -> None:
        tried.append(f"{name} on {current().queue}")
        raise ValueError(name)

    async def main() -> None:
        when = t.later(queue="fast", retry=RetryPolicy(max_attempts=2, min_backoff=1.0), name="n", delay=10)
        handle = await when.call("a")
        again = await when.call("a")
        await world.serve("fast", "slow")
        status = await handle.status()
        assert (again.id, status.state, status.attempt) == (handle.id, State.FAILED, 2)

    run(main())
    assert tried == ["a on fast"] * 2


def test_a_call_as_a_task_runs_from_the_queue_it_is_added_to(world: World, run: Go) -> None:
    seen: list[tuple[int, str, str | None]] = []

    @world.registry.task("t")
    async def t(number: int) -> None:
        seen.append((number, current().queue, current().headers.get("a")))

    async def main() -> None:
        await world.system.pull("images").add(t.later(tag="x", headers={"a": "b"}).task(7))
        await world.serve("images")

    run(main())
    assert seen == [(7, "images", "b")]


@pytest.mark.parametrize("way", ["call", "task"])
def test_headers_and_trace_go_from_a_call_to_its_run_and_on_to_the_calls_that_it_makes(
    world: World, run: Go, way: str
) -> None:
    """`task` makes a task to be written in a transaction: it has the same cause."""
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    kept = {"traceparent": trace, "tracestate": "a=1", "baggage": "user=7", "namespace": "acme"}
    seen: dict[str, tuple[str | None, dict[str, str]]] = {}

    @world.registry.task("child")
    async def child() -> None:
        seen["child"] = current().trace, dict(current().headers)

    @world.registry.task("parent")
    async def parent() -> None:
        seen["parent"] = current().trace, dict(current().headers)
        if way == "call":
            await child.call()
        else:
            await world.system.pull("default").add(child.task())

    async def main() -> None:
        await parent.later(headers={**kept, "own": "1"}).call()
        await world.serve()

    run(main())
    assert seen["parent"] == (trace, {**kept, "own": "1"})
    assert seen["child"] == (trace, kept)


def test_a_call_may_be_for_another_namespace_than_its_maker(world: World, run: Go) -> None:
    seen: list[str | None] = []

    @world.registry.task("child")
    async def child() -> None:
        seen.append(current().headers.get("namespace"))

    @world.registry.task("parent")
    async def parent() -> None:
        await child.later(headers={"namespace": "b"}).call()

    async def main() -> None:
        await parent.later(headers={"namespace": "a"}).call()
        await child.call()
        await world.serve()

    run(main())
    assert sorted(seen, key=str) == [None, "b"]


def test_every_state_is_seen_in_its_time(world: World, run: Go) -> None:
    @world.registry.task("t", retry=RetryPolicy(max_attempts=1))
    async def t(how: str) -> None:
        await asyncio.sleep(5)
        if how == "waiting" and current().attempt == 1:
            raise Retry(after=20, counts=False)
        if how == "failed":
            raise ValueError(how)
        if how == "discarded":
            raise Discard(how)

    async def main() -> dict[str, State]:
        handles = {how: await t.call(how) for how in ("done", "failed", "discarded", "waiting", "cancelled")}
        handles["parked"] = await _unknown(world)
        assert {(await handle.status()).state for handle in handles.values()} == {State.QUEUED}
        await handles["cancelled"].cancel()
        working = asyncio.ensure_future(world.serve(seconds=400))
        await asyncio.sleep(2)
        assert (await handles["done"].status()).state is State.RUNNING
        await asyncio.sleep(10)
        assert (await handles["waiting"].status()).state is State.WAITING
        await working
        return {how: (await handle.status()).state for how, handle in handles.items()}

    ended = run(main())
    assert ended.pop("waiting") is State.DONE
    assert ended == {how: State(how) for how in ("done", "failed", "discarded", "cancelled", "parked")}


async def _unknown(world: World) -> Any:
    """Call a function that the worker does not have."""

    @world.registry.task("gone")
    async def gone() -> None: ...

    handle = await gone.call()
    del world.registry.functions["gone"]
    return handle
