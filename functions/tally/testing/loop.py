"""A deterministic asyncio event loop with virtual time: nothing waits, time jumps to the next timer.

The same seed gives the same run, whatever the hash seed. Callbacks of one process (process.py) keep asyncio's order;
with `random` those of different processes interleave by its choice. There are no sockets, signals or threads.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import count
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple, cast

from tally.testing import process
from tally.testing.process import Process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_CALLBACKS_PER_INSTANT = 1_000_000
_CURRENT = process.CURRENT
_PRUNE_AT = 200  # tasks kept, of which the done ones are then let go


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, but the main coroutine is not done."""


class Spinning(RuntimeError):
    """The callbacks go on and on and time stands still."""


class _Call(asyncio.TimerHandle):
    """A callback that waits for its turn or its time. Has all it needs in slots of its own."""

    __slots__ = ("args", "at", "context", "function", "owner")

    def __init__(self, at: float, function: Callable[..., object], args: tuple[Any, ...], context: Context | None):
        self.at = at
        self.function: Callable[..., object] | None = function
        self.args = args
        self.context = context = copy_context() if context is None else context
        self.owner = context.get(_CURRENT)

    def __repr__(self) -> str:
        return f"<call of {self.function!r} at {self.at}>"

    def cancel(self) -> None:
        self.function = None

    def cancelled(self) -> bool:
        return self.function is None

    def when(self) -> float:
        return self.at

    def get_context(self) -> Context:
        return self.context


class _Numbered:
    """Hashed by a number of the loop's: a set has the same order in each run. Few are hashed; they get it then."""

    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop = cast(asyncio.Future[Any], self).get_loop()
            self._number = number = cast(VirtualLoop, loop).next_number()
            return number


class _Task(_Numbered, asyncio.Task[Any]):
    pass


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class VirtualLoop(asyncio.BaseEventLoop):
    """Use as `with VirtualLoop() as loop: loop.run(main())`. `run` may be called again; time goes on."""

    def __init__(self, *, random: Random | None = None) -> None:
        super().__init__()
        self._random = random
        self._now = 0.0
        self._order = count()
        self._due: list[_Call] = []
        self._timers: list[tuple[float, int, _Call]] = []
        self._tasks: list[tuple[asyncio.Task[Any], Process | None]] = []
        self._prune_at = _PRUNE_AT
        self._unhandled: list[dict[str, Any]] = []
        self._active = False
        self._shut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, then cancel what it left; return its result.

        Raises what it raises, Deadlock, or the first error of a callback or of a task that nobody waited for.
        """
        try:
            result: T = self.run_until_complete(self.create_task(main))
        finally:
            self._cancel_rest()
        if self._unhandled:
            context = self._unhandled[0]
            raise RuntimeError(f"unhandled in the loop: {context.get('message')}") from context.get("exception")
        return result

    def thaw(self, frozen: Process) -> None:
        """Let a frozen process go on with what fell due meanwhile."""
        self._due.extend(handle for handle in frozen.thaw() if isinstance(handle, _Call))

    def next_number(self) -> int:
        """Return a number that no timer, task or future of this loop has."""
        return next(self._order)

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        call = _Call(self._now, callback, args, context)
        if not self._shut:
            self._due.append(call)
        return call

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = self._now + delay
        call = _Call(when, callback, args, context)
        if not self._shut:
            heapq.heappush(self._timers, (when, next(self._order), call))
        return call

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        call = _Call(when, callback, args, context)
        if not self._shut:
            heapq.heappush(self._timers, (when, next(self._order), call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        title = None if name is None else str(name)
        task = _Task(coro, loop=self, name=title, context=context, **options)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [entry for entry in self._tasks if not entry[0].done()]
            self._prune_at = max(_PRUNE_AT, 2 * len(self._tasks))
        self._tasks.append((task, process.current(context)))
        return task

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run the function in a later turn, on this thread: a virtual loop has no others."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_soon(work)
        return future

    def run_until_complete(self, future: Any) -> Any:
        main = asyncio.ensure_future(future, loop=self)
        self._active = True
        asyncio._set_running_loop(self)
        try:
            while not main.done():
                self._turn()
        finally:
            self._active = False
            asyncio._set_running_loop(None)
        return main.result()

    def is_running(self) -> bool:
        return self._active

    def is_closed(self) -> bool:
        return self._shut

    def close(self) -> None:
        """Drop what is left. Coroutines that never ended are closed while the loop takes no more calls."""
        self._shut = True
        self._due.clear()
        self._timers.clear()
        for task, _ in self._tasks:
            with suppress(BaseException):  # a dead process' last words are not heard
                task.get_coro().close()
        self._unhandled.clear()
        self._tasks.clear()

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: debug mode measures real time."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: there are no hooks for asynchronous generators."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._shut:
            self._unhandled.append(context)

    def _turn(self) -> None:
        """Run the callbacks of this instant one by one; if there is none, go to the next timer's."""
        due = self._due
        if not due:
            self._jump()
        for _ in range(_CALLBACKS_PER_INSTANT):
            if not due:
                return
            call = due.pop(self._pick()) if len(due) > 1 else due.pop()
            function = call.function
            if function is None:
                continue
            owner = call.owner
            if owner is not None and not owner.admits(call):
                continue
            try:
                call.context.run(function, *call.args)
            except Exception as error:
                self.call_exception_handler({"message": f"error in {function!r}", "exception": error})
        raise Spinning(f"{_CALLBACKS_PER_INSTANT:,} callbacks at {self._now} s: is something polling?")

    def _pick(self) -> int:
        """Choose whose callback is next; within a process it is the oldest."""
        if self._random is None:
            return 0
        due = self._due
        owner = due[int(self._random.random() * len(due))].owner
        place = 0
        while due[place].owner is not owner:
            place += 1
        return place

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].function is None:
            heapq.heappop(timers)
        if not timers:
            names = sorted(task.get_name() for task, _ in self._tasks if not task.done())
            raise Deadlock(f"nothing is ready and no timer is set at {self._now} s; waiting: {', '.join(names)}")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            call = heapq.heappop(timers)[2]
            if call.function is not None:
                self._due.append(call)

    def _cancel_rest(self) -> None:
        rest = [
            task
            for task, owner in self._tasks
            if not (task.done() or (owner is not None and (owner.dead or owner.frozen)))
        ]
        for task in rest:
            task.cancel()
        if rest and not self._shut:
            self.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
