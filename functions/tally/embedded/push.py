"""Sends the requests of embedded's push queues: tasks for `run_task` within the process, any other by `elsewhere`."""

from collections.abc import Awaitable, Callable

from tally.ports import HttpTask

Receive = Callable[[str, dict[str, str], bytes], Awaitable[int]]


class Sender:
    """`receive` takes what is addressed to `target` and a queue below it; both return the status of the answer."""

    def __init__(self, target: str, receive: Receive, elsewhere: Callable[[HttpTask], Awaitable[int]]) -> None:
        self._target = target
        self._receive = receive
        self._elsewhere = elsewhere

    async def send(self, task: HttpTask) -> int:
        """Return the status of the answer. Raises OSError when there is none."""
        if task.url.startswith(self._target):
            return await self._receive(task.url.removeprefix(self._target), dict(task.headers), task.body)
        return await self._elsewhere(task)
