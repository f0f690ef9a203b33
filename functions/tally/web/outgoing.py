"""Sends the HTTP request of a push task, for what no queue service sends: embedded's tasks, and very large ones."""

import asyncio
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from tally.ports import HttpTask


async def send(task: HttpTask, token: str = "") -> int:
    """Return the status of the answer. Raises OSError when there is none in the task's deadline."""
    return await asyncio.to_thread(_send, task, token)


def _send(task: HttpTask, token: str) -> int:
    url = urlsplit(task.url)
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=task.deadline)
    headers = dict(task.headers) | ({"authorization": f"Bearer {token}"} if token else {})
    path = url.path or "/"
    try:
        connection.request(task.method, f"{path}?{url.query}" if url.query else path, task.body, headers)
        return connection.getresponse().status
    except HTTPException as error:
        raise OSError(f"no answer from {url.hostname}: {error!r}") from error
    finally:
        connection.close()
