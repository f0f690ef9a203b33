"""A soft limit of a plain function: raised in its thread, in real time, and in no other moment than while it runs."""

import time
from collections.abc import Callable
from contextlib import suppress
from traceback import extract_tb
from typing import Any

import pytest

from tally.tasks import soft_timeout
from tally.tasks.context import SoftTimeout
from tally.tasks.pool import WorkerPool
from tally.tasks.soft_timeout import _Alarm, limited


def _busy() -> None:
    """Be in Python often enough for an exception to be raised there."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        time.sleep(0.001)
    raise AssertionError("nothing was raised")


async def _in_pool(function: Callable[[], Any], soft: float) -> Any:
    pool = WorkerPool(1)
    try:
        return await pool.submit(limited(function, soft))
    finally:
        await pool.drain()


async def test_a_plain_function_ends_in_order_in_its_thread() -> None:
    def tidy() -> str:
        try:
            _busy()
        except SoftTimeout:
            return "tidy"
        return ""

    assert await _in_pool(tidy, 0.02) == "tidy"


async def test_a_plain_function_that_does_not_catch_it_has_failed_by_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"more than 0\.02 s, its soft limit") as caught:
        await _in_pool(_busy, 0.02)
    assert isinstance(caught.value.__cause__, SoftTimeout)
    assert "_busy" in [frame.name for frame in extract_tb(caught.value.__cause__.__traceback__)]


async def test_what_a_plain_function_returns_and_raises_passes() -> None:
    def raises() -> None:
        raise KeyError("k")

    assert await _in_pool(lambda: 5, 60) == 5
    with pytest.raises(KeyError):
        await _in_pool(raises, 60)


class _Loop:
    """A loop in this very thread, whose timer goes off when the test says so."""

    def __init__(self) -> None:
        self.ring: Callable[[], None] = lambda: None
        self.put_away = False

    def call_soon_threadsafe(self, callback: Callable[..., None], *args: Any) -> None:
        callback(*args)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "_Loop":
        self.ring = callback
        return self

    def cancel(self) -> None:
        self.put_away = True


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> _Loop:
    loop = _Loop()
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    return loop


def test_a_limit_that_passes_after_the_end_raises_nothing(loop: _Loop) -> None:
    assert limited(lambda: 5, 1)() == 5
    loop.ring()
    assert sum(range(200)) == 19_900
    assert loop.put_away


def test_a_limit_that_passes_in_the_moment_of_the_end_changes_nothing(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = _Alarm.end

    def ring_and_end(alarm: _Alarm) -> None:
        loop.ring()
        end(alarm)

    monkeypatch.setattr(_Alarm, "end", ring_and_end)
    assert limited(lambda: 5, 1)() == 5
    with pytest.raises(KeyError):
        limited({}.__getitem__, 1)("k")
    assert sum(range(200)) == 19_900


def test_a_limit_that_is_on_its_way_at_the_end_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[type[BaseException] | None] = []
    monkeypatch.setattr(soft_timeout, "_raise_in", lambda _, error: raised.append(error))
    alarm = _Alarm()
    alarm._ring()
    alarm.end()
    alarm._ring()
    assert raised == [SoftTimeout, None]


async def test_a_function_that_ends_at_its_limit_leaves_its_thread_alone() -> None:
    """The limit may pass in the very moment in which the function returns: the next one must not find it."""
    pool = WorkerPool(1)
    at_the_limit = limited(lambda: time.sleep(0.002), 0.002)
    for _ in range(100):
        with suppress(TimeoutError):
            await pool.submit(at_the_limit)
        assert await pool.submit(lambda: sum(range(200))) == 19_900
    await pool.drain()
