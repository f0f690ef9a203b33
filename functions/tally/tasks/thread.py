"""Waiting in one thread for what an event loop in another does."""

import asyncio
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def has_loop() -> bool:
    """Say whether an event loop runs in this thread: to wait here would stop it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def wait(future: Future[T], timeout: float | None) -> T:
    """Return or raise what a coroutine on another thread's loop does; it is cancelled when the wait ends before it."""
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise
