"""Code around every run, and code that is told what became of runs. Neither can harm one."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tally.logs import event as log
from tally.tasks.context import Context
from tally.tasks.events import Kind, RunEvent

PATIENCE = 5.0  # seconds that all hooks for one event have together: the run waits for them


class Middleware:
    """Code around every run. Override what is wanted; each may be a coroutine function.

    `before` may raise `Retry` or `Discard`; `after` sees the result, `on_error` what the run raised. They run in the
    order of registration before, and in reverse after. `happened` is told each event. An error in any but `before` is
    logged and changes nothing.
    """

    def before(self, context: Context) -> Any: ...

    def after(self, context: Context, result: Any) -> Any: ...

    def on_error(self, context: Context, error: BaseException) -> Any: ...

    def happened(self, event: RunEvent) -> Any: ...


class Subscriber(Middleware):
    """Hands the events of some kinds to a function."""

    def __init__(self, kinds: frozenset[Kind], function: Callable[[RunEvent], Any]) -> None:
        self._kinds = kinds
        self._function = function

    def happened(self, event: RunEvent) -> Any:
        return self._function(event) if event.kind in self._kinds else None


async def tell(middleware: Iterable[Middleware], events: Iterable[RunEvent]) -> None:
    """Tell all of each event, one after another; those who are still at it after PATIENCE are cut short."""
    layers = list(middleware)
    for event in events:
        try:
            async with asyncio.timeout(PATIENCE):
                await quietly([partial(layer.happened, event) for layer in layers])
        except TimeoutError:
            log("task-subscriber-slow", level=logging.ERROR, kind=str(event.kind), task=event.task, run=event.id)


async def quietly(hooks: Iterable[Callable[[], Any]]) -> None:
    """Call hooks one after another; what they raise is logged, but for a cancellation of the caller."""
    for hook in hooks:
        try:
            await call(hook)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a subscriber may raise what it likes
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            log("task-middleware-failed", level=logging.ERROR, error=error)


async def call(hook: Callable[..., Any], *args: Any) -> None:
    """Call a hook, and await what it returns if that can be awaited."""
    answer = hook(*args)
    if asyncio.iscoroutine(answer):
        await answer


def is_cancelled() -> bool:
    """Say whether the asyncio task that asks is being cancelled itself, rather than something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
