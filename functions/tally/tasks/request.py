"""Push tasks that a queue service does not take, as calls of a task function of our own: `tally.request`.

The call waits its time in hops and carries its payload beside the task, as every call does. When it is due, a request
that the service takes is handed to it; a larger one is sent from `run_task` itself, and again by the task's policy.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tally import limits
from tally.errors import NotFound
from tally.ports import Dispatcher, HttpTask
from tally.tasks.call import digest
from tally.tasks.client import Tasks
from tally.tasks.context import current
from tally.tasks.deferred import DEFAULT_RETRY, Deferred, Registry
from tally.tasks.push import PushQueue
from tally.tasks.task import Task

NAME = "tally.request"
Send = Callable[[HttpTask], Awaitable[int]]


class NotAnswered(Exception):
    """The target's answer was not 2xx."""


class Requests:
    """Enqueues and performs such tasks. `send` is None where nothing can be sent but through the service."""

    def __init__(self, registry: Registry, tasks: Tasks, dispatcher: Dispatcher, send: Send | None) -> None:
        self._tasks = tasks
        self._dispatcher = dispatcher
        self._send = send
        self._function: Deferred[..., Any] = registry.function(NAME, self.perform)

    async def add(self, queue: PushQueue, task: Task, request: HttpTask) -> bool:
        """Enqueue a request for later; return False when its name was taken."""
        later = self._function.later(
            name=task.identity(queue.name) or request.id,
            eta=task.eta,
            delay=task.delay,
            expires=task.expires,
            retry=task.retry or DEFAULT_RETRY,
            queue=queue.name,
        )
        return (await later.call(request)).created

    async def cancel(self, queue: str, name: str) -> bool:
        """Cancel a request that was not handed on yet; return False when there is none of that name."""
        try:
            return await self._tasks.handle(digest(queue, name)).cancel()
        except NotFound:
            return False

    async def run_now(self, queue: str, name: str) -> bool:
        """Perform a request that waits for its time now; return False when there is none of that name."""
        try:
            return await self._tasks.run_now(digest(queue, name))
        except NotFound:
            return False

    async def perform(self, request: HttpTask) -> int:
        """Hand a request to the service, or send it; return the status."""
        request = replace(request, at=None)
        if len(request.body) <= limits.PUSH_TASK_BYTES:
            await PushQueue.hand_on(self._dispatcher, current().queue, request)
            return 202
        if self._send is None:
            raise NotAnswered(f"{len(request.body)} bytes are more than the service takes, and nothing here can send")
        status = await self._send(request)
        if not 200 <= status < 300:
            raise NotAnswered(f"{request.url} answered {status}")
        return status
