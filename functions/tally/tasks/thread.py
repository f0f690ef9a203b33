"""Waiting in one thread for what an event loop in another does."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def has_loop() -> bool:
    """Say whether an event loop runs in this thread: to wait here would stop it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def submit(call: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> "Future[T | _Exit]":
    """Start a coroutine on the loop of another thread, for `wait` to wait for."""
    return asyncio.run_coroutine_threadsafe(_caught(call), loop)


def wait(future: "Future[T | _Exit]", timeout: float | None) -> T:
    """Return or raise what a coroutine on another thread's loop does; it is cancelled when the wait ends before it."""
    try:
        result = future.result(timeout)
    except BaseException:
        future.cancel()
        raise
    if isinstance(result, _Exit):
        raise result.error
    return result


class _Exit:
    """An error that would have ended the loop, and all other calls on it, if it had been raised there."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _caught(call: Coroutine[Any, Any, T]) -> T | _Exit:
    try:
        return await call
    except (SystemExit, KeyboardInterrupt) as error:
        return _Exit(error)
