"""Task queues for programs without an event loop: Flask handlers, scripts, plain threads.

    with TaskQueues() as queues:
        handle = queues.run(send_receipt.call(7, ["a@b.example"]))
        sent = queues.run(handle.result(timeout=10))

One thread with an event loop is behind it, until `close`. Whatever is written `await …` elsewhere is `queues.run(…)`
here. A plain task function, in a worker, has the worker's loop: `current().run(…)`.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from tally import bootstrap
from tally.errors import ConfigError
from tally.tasks import deferred, thread
from tally.tasks.system import TaskSystem

T = TypeVar("T")
GRACE = 5.0  # seconds that calls of other threads have to end when it is closed


class TaskQueues:
    """Connects this process's task functions to their queues, by the environment's settings, from here to `close`.

    Open it once in a process, after the server has forked. `system` gives the pull and push queues, whose methods are
    `run` like all others. Raises ConfigError.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        if deferred.registry.connected is not None:
            raise ConfigError(
                "task queues are open already, in this process or the one that forked it: use those, or open them later"
            )
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._opened: Future[TaskSystem] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        queues = partial(bootstrap.task_queues, environ)
        # A daemon: a program that forgets to close it can still end.
        self._thread = threading.Thread(target=self._work, args=[queues], name="tally-task-queues", daemon=True)
        self._thread.start()
        self.system = self._opened.result()

    def run(self, call: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine to its end, and return or raise what it does. From any thread, several at a time.

        Raises TimeoutError after `timeout` seconds (what it did may stay done), ConfigError when it is closed, belongs
        to a process that forked since, or when this thread has an event loop: await the coroutine there.
        """
        problem = self._problem()  # before the lock: a fork may have copied it while another thread held it
        if problem:
            call.close()
            raise ConfigError(problem)
        with self._lock:
            if self._loop is None:
                call.close()
                raise ConfigError("these task queues are closed")
            future = thread.submit(self._tracked(call), self._loop)
        return thread.wait(future, timeout)

    def close(self) -> None:
        """Wait a little for the calls of other threads, cancel the rest, and let everything go. May be called twice."""
        if os.getpid() != self._process:
            return
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def __enter__(self) -> "TaskQueues":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _problem(self) -> str:
        if os.getpid() != self._process:
            return "these task queues are of the process that forked this one: open them after the fork"
        return "an event loop runs in this thread: await the call there" if thread.has_loop() else ""

    def _work(self, queues: Callable[[], AbstractAsyncContextManager[TaskSystem]]) -> None:
        try:
            asyncio.run(self._serve(queues))
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _serve(self, queues: Callable[[], AbstractAsyncContextManager[TaskSystem]]) -> None:
        async with queues() as system:
            self._loop = asyncio.get_running_loop()
            self._opened.set_result(system)
            await self._ending.wait()
            if self._calls:
                _, late = await asyncio.wait(self._calls, timeout=GRACE)
                for call in late:
                    call.cancel()
                await asyncio.gather(*late, return_exceptions=True)

    async def _tracked(self, call: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await call
        finally:
            self._calls.discard(task)
