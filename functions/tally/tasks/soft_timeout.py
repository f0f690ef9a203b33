"""A soft time limit: `SoftTimeout` is raised inside a function that has run that long, so that it can end in order.

An async function finds it at its await. A plain one finds it before its next line of Python: what waits in C (a sleep,
a socket, a lock) comes back first. It is raised once; what the function then returns or raises is its outcome.
"""

import asyncio
import ctypes
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import wraps
from typing import Any, Generic, TypeVar

from tally.tasks.context import SoftTimeout
from tally.tasks.pool_worker import Outcome, capture, is_async

T = TypeVar("T")


def limited(function: Callable[..., Any], seconds: float | None) -> Callable[..., Any]:
    """Return the function under a limit from its start; None: as it is. Call this on the loop of the run.

    Whoever does not catch `SoftTimeout` has raised TimeoutError.
    """
    if seconds is None:
        return function
    return _on_loop(function, seconds) if is_async(function) else _in_thread(function, seconds)


def _on_loop(function: Callable[..., Coroutine[Any, Any, Any]], seconds: float) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        limit = _Cancellation()
        timer = asyncio.get_running_loop().call_later(seconds, limit.make)
        try:
            return await _Turned(function(*args, **kwargs), limit.turned)
        except SoftTimeout as error:
            raise _too_long(seconds) from error
        finally:
            timer.cancel()

    return call


class _Cancellation:
    """Cancels the asyncio task that makes it, as a limit, not as an end."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._made = False

    def make(self) -> None:
        if self._task is not None:
            self._made = True
            self._task.cancel()

    def turned(self, error: BaseException) -> BaseException:
        """Return what the function shall find in place of an error: another's cancellation stays what it is."""
        if not self._made or self._task is None or not isinstance(error, asyncio.CancelledError):
            return error
        self._made = False
        return error if self._task.uncancel() else SoftTimeout()


class _Turned(Generic[T]):
    """Awaits a coroutine in which other errors arrive than its asyncio task throws."""

    def __init__(self, call: Coroutine[Any, Any, T], turned: Callable[[BaseException], BaseException]) -> None:
        self._call = call
        self._turned = turned

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[Any], Any] = self._call.send
        value: Any = None
        while True:
            try:
                awaited = step(value)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step, value = self._call.send, (yield awaited)
            except GeneratorExit:
                self._call.close()
                raise
            except BaseException as error:
                step, value = self._call.throw, self._turned(error)


def _in_thread(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    loop = asyncio.get_running_loop()

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        alarm = _Alarm()
        _tell(loop, alarm.set, loop, seconds)
        outcome = None
        with suppress(SoftTimeout):  # it may come when the function has ended by itself: then it changes nothing
            outcome = capture(function, args, kwargs)
            alarm.end()
        _tell(loop, alarm.put_away)
        if outcome is None or isinstance(outcome.error, SoftTimeout):
            raise _too_long(seconds) from (None if outcome is None else outcome.error)
        return _given(outcome)

    return call


class _Alarm:
    """Raises SoftTimeout in the thread that makes it, at most once, and not after that thread has said `end`."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._over = False
        self._rang = False
        self._timer: asyncio.TimerHandle | None = None

    def set(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._timer = loop.call_later(seconds, self._ring)

    def put_away(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Let nothing be raised from here on, not even what is on its way. This itself may still raise it."""
        with self._lock:
            self._over = True
            if self._rang:
                _raise_in(self._thread, None)

    def _ring(self) -> None:
        with self._lock:
            if not self._over:
                self._rang = True
                _raise_in(self._thread, SoftTimeout)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have CPython raise an error in a thread before its next line; None takes back what it has not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object() if error is None else ctypes.py_object(error)
    )


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: the process ends
        loop.call_soon_threadsafe(callback, *args)


def _given(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _too_long(seconds: float) -> TimeoutError:
    return TimeoutError(f"the task took more than {seconds:g} s, its soft limit")
