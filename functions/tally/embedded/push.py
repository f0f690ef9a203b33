"""Sends the requests of embedded's push queues: tasks for `run_task` within the process, any other over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from tally.ports import HttpTask

Receive = Callable[[str, dict[str, str], bytes], Awaitable[int]]


class Sender:
    """`receive` takes what is addressed to `target` and a queue below it, and returns the status."""

    def __init__(self, target: str, receive: Receive) -> None:
        self._target = target
        self._receive = receive

    async def send(self, task: HttpTask) -> int:
        """Return the status of the answer. Raises OSError when there is none."""
        if task.url.startswith(self._target):
            return await self._receive(task.url.removeprefix(self._target), dict(task.headers), task.body)
        return await asyncio.to_thread(_request, task)


def _request(task: HttpTask) -> int:
    url = urlsplit(task.url)
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=task.deadline)
    try:
        path = url.path or "/"
        connection.request(task.method, f"{path}?{url.query}" if url.query else path, task.body, dict(task.headers))
        return connection.getresponse().status
    except HTTPException as error:
        raise OSError(f"no answer from {url.hostname}: {error!r}") from error
    finally:
        connection.close()
