"""Eager mode: calls end before `call` returns."""

from collections.abc import Iterator

import pytest

from tally.errors import TaskFailed
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.deferred import Registry
from tally.testing.clock import VirtualClock
from tally.testing.eager import eager
from tally.testing.store import FakeStore

registry = Registry()


@registry.task("divide", retry=RetryPolicy(max_attempts=3, min_backoff=60))
async def divide(a: int, b: int) -> float:
    if b == 7 and current().attempt < 3:
        raise ConnectionError("flaky")
    return a / b


@registry.task("half")
def half(a: int) -> float:
    return a / 2


@pytest.fixture(autouse=True)
def connected() -> Iterator[None]:
    with eager(registry, FakeStore(), VirtualClock()):
        yield


async def test_a_call_has_ended_when_it_returns() -> None:
    assert await (await divide.call(6, 3)).result(0) == 2
    assert await (await half.later(delay=3600).call(3)).result(0) == 1.5


async def test_retries_follow_at_once() -> None:
    handle = await divide.call(14, 7)
    assert await handle.result(0) == 2
    assert (await handle.status()).attempt == 3


async def test_an_error_is_in_the_result() -> None:
    handle = await divide.call(1, 0)
    with pytest.raises(TaskFailed, match="ZeroDivisionError"):
        await handle.result(0)
