"""One worker of a pool: runs a call on the event loop or in its own thread, and catches what comes of it."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any

THREADS = "tally-pool"  # how the names of the workers' threads begin
at_work: ContextVar["Worker"] = ContextVar("tally.pool.worker")


@dataclass(frozen=True, slots=True)
class Outcome:
    value: Any = None
    error: BaseException | None = None

    def tell(self, future: "asyncio.Future[Any]") -> None:
        """Give the caller's future this result or error, if it still waits for one."""
        if future.done():
            return
        if self.error is None:
            future.set_result(self.value)
        elif isinstance(self.error, asyncio.CancelledError):
            future.cancel()
        elif isinstance(self.error, StopIteration):
            future.set_exception(RuntimeError(f"the job raised {self.error!r}"))
        else:
            future.set_exception(self.error)


@dataclass(eq=False, slots=True)
class Worker:
    """`state` is what the pool's `set_up` made; `running` is the call at work."""

    state: Any = None
    thread: ThreadPoolExecutor | None = None
    ready: bool = False
    running: "asyncio.Future[Outcome] | None" = None

    def call(
        self, context: Context, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "asyncio.Future[Outcome]":
        """Start a call where it belongs; its future never fails, but is cancelled when a loop's job is."""
        loop = asyncio.get_running_loop()
        context.run(at_work.set, self)
        if is_async(function):
            return loop.create_task(_capture_async(function, args, kwargs), context=context)
        if self.thread is None:
            self.thread = ThreadPoolExecutor(1, thread_name_prefix=THREADS)
        return loop.run_in_executor(self.thread, lambda: context.run(capture, function, args, kwargs))


def capture(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
    try:
        return Outcome(function(*args, **kwargs))
    except BaseException as error:  # a job that raises SystemExit ends itself, not the process
        return Outcome(error=error)


async def _capture_async(
    function: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Outcome:
    try:
        return Outcome(await function(*args, **kwargs))
    except BaseException as error:  # as above; a cancellation becomes the outcome too
        return Outcome(error=error)


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling this makes a coroutine: an async function, a wrapped one, or an object's `__call__`."""
    kinds = (function, inspect.unwrap(function), type(function).__call__)
    return any(inspect.iscoroutinefunction(kind) for kind in kinds)


async def ended(running: "asyncio.Future[Outcome]", timeout: float | None) -> bool:
    done, _ = await asyncio.wait([running], timeout=timeout)
    return bool(done)


def cancel(running: "asyncio.Future[Outcome] | None") -> bool:
    """Cancel what runs on the loop; leave a thread alone: its worker is free only when the function returns."""
    return isinstance(running, asyncio.Task) and running.cancel()


def outcome_of(running: "asyncio.Future[Outcome]") -> Outcome:
    return Outcome(error=asyncio.CancelledError()) if running.cancelled() else running.result()
