"""A simulated process: a group of tasks on one virtual loop that can die at any await, or freeze and come back.

The tasks, callbacks and timers of a process are told by a context variable, which everything they start inherits. A
dead process' callbacks are never run again: no `finally`, no `except`, as after SIGKILL. What it sent is on its way all
the same: a network must carry calls in a context of its own (`no_process`).
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class Process:
    """`fuse`, when set, counts the callbacks that are left until the process dies; `thaws` how often it came back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.thaws = 0
        self.fuse: int | None = None
        self._held: list[asyncio.Handle] = []
        self._context = copy_context()
        self._context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    def __str__(self) -> str:
        return self.name

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task in this process; what it starts belongs to it too."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    def kill(self) -> None:
        """Die at once, whatever is in flight (SIGKILL)."""
        self.dead = True
        self._held.clear()

    def freeze(self) -> None:
        """Run nothing until `thaw`, while time goes on (SIGSTOP)."""
        self.frozen = True

    def thaw(self) -> list[asyncio.Handle]:
        """Come back (SIGCONT); return the callbacks that fell due meanwhile. `VirtualLoop.thaw` runs them."""
        self.frozen = False
        self.thaws += 1
        held, self._held = self._held, []
        return held

    def admits(self, handle: asyncio.Handle) -> bool:
        """Say whether a callback that is due may run now; keep it for later if the process is frozen."""
        if self.dead:
            return False
        if self.frozen:
            self._held.append(handle)
            return False
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.kill()
                return False
        return True


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


def current(context: Context | None = None) -> Process | None:
    """Return the process that runs, or that a context belongs to."""
    return CURRENT.get() if context is None else context.get(CURRENT)


def no_process() -> Context:
    """Return a context outside all processes, for what goes on when its caller dies."""
    return Context()
