"""What a running task may know of itself, say and find: its context, `Retry`, `Discard`, progress, `SoftTimeout`.

async def import_rows(url: str) -> int:
    context = current()
    for done, row in enumerate(rows):
        context.progress({"done": done})
        if context.left() < 5:
            raise Retry(after=0)
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from tally import limits
from tally.errors import InvalidInput, TallyError, TooLarge
from tally.tasks import thread
from tally.tasks.task import TRACE_HEADER, Duration, seconds

T = TypeVar("T")
# Headers that go from a run to the calls that it makes: W3C's, and the tenant for whom all is done.
INHERITED = (TRACE_HEADER, "tracestate", "baggage", "namespace")


class Retry(TallyError):
    """Raised by a task: run it again `after` seconds (None: as its policy says), quietly, within its policy's limits.

    With `counts=False` the attempt does not count against them.
    """

    code = "retry"

    def __init__(self, reason: str = "", *, after: Duration | None = None, counts: bool = True) -> None:
        super().__init__(reason or "the task asked for another run")
        self.after = None if after is None else seconds("after", after)
        self.counts = counts


class Discard(TallyError):
    """Raised by a task: it is over, without a result, a retry or a dead letter."""

    code = "discard"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class SoftTimeout(asyncio.CancelledError):
    """Raised in a task when its `soft_timeout` is over: tidy up and return, or raise `Retry`; `timeout` still comes.

    It is a cancellation, so that neither `except Exception` nor a task group holds it up.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`id` names the run, `name` the function; `attempt` counts from 1; `eta` in µs; `trace` is a W3C traceparent.

    `deadline` is on `clock`, the event loop's; `left()` may be asked in a thread too.
    """

    id: str
    name: str
    attempt: int
    queue: str
    eta: int
    worker: str
    deadline: float
    clock: Callable[[], float] = time.monotonic
    trace: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[bytes], None] = lambda _: None
    loop: asyncio.AbstractEventLoop | None = None

    def left(self) -> float:
        """Return the seconds left until the timeout, at least 0."""
        return max(0.0, self.deadline - self.clock())

    def run(self, call: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the worker's event loop, from a plain function: `current().run(send.call(7))`.

        Raises InvalidInput in an async function, which awaits it; TimeoutError after `timeout` seconds.
        """
        if self.loop is None or thread.has_loop():
            call.close()
            raise InvalidInput("this is no plain function in a worker's thread: await the call")
        return thread.wait(thread.submit(call, self.loop), timeout)

    def progress(self, value: object) -> None:
        """Show how far the run is: a small JSON value, seen by `status` within about a second. Never blocks."""
        data = msgspec.json.encode(value)
        if len(data) > limits.PROGRESS_BYTES:
            raise TooLarge(f"progress of {len(data)} bytes: the limit is {limits.PROGRESS_BYTES}")
        self.report(data)


running: ContextVar[Context] = ContextVar("tally.tasks.running")


def inherited(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a call, with those that it takes over from the task that makes it, if one does."""
    context = running.get(None)
    given = {} if context is None else context.headers
    return {**{name: given[name] for name in INHERITED if name in given}, **headers}


def current() -> Context:
    """Return the context of the task that runs here. Raises InvalidInput outside one."""
    try:
        return running.get()
    except LookupError:
        raise InvalidInput("no task runs here: the context is there only inside one") from None


def progress(value: object) -> None:
    """`current().progress(value)`."""
    current().progress(value)
