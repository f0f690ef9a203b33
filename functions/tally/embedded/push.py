"""Sends the requests of embedded's push queues: tasks for `run_task` within the process, any other by `elsewhere`."""

import asyncio
from collections.abc import Callable, Coroutine

from tally.ports import HttpTask

Receive = Callable[[str, dict[str, str], bytes], Coroutine[None, None, int]]
Send = Callable[[HttpTask], Coroutine[None, None, int]]


class Sender:
    """`receive` takes what is addressed to `target` and a queue below it; both return the status of the answer."""

    def __init__(self, target: str, receive: Receive, elsewhere: Send) -> None:
        self._target = target
        self._receive = receive
        self._elsewhere = elsewhere
        self._running: set[asyncio.Future[int]] = set()

    async def send(self, task: HttpTask) -> int:
        """Return the status of the answer. Raises OSError when there is none.

        Whoever gives up waiting leaves a task of `run_task` running, as a service that hangs up would.
        """
        if not task.url.startswith(self._target):
            return await self._elsewhere(task)
        queue = task.url.removeprefix(self._target)
        running = asyncio.ensure_future(self._receive(queue, dict(task.headers), task.body))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)
