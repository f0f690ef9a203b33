"""An HTTP load of keep-alive connections that costs the machine little: requests are bytes made before.

Runs in the measuring process, at 127.0.0.1 only, and ends when its requests are answered.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast


class _Sender(asyncio.Protocol):
    """Sends the next request when the answer to the last is whole."""

    def __init__(self, requests: Iterator[bytes], done: "asyncio.Future[None]", status: bytes) -> None:
        self._requests = requests
        self._done = done
        self._status = status
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        at = head.find(b"content-length: ")
        length = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        if not self._buffer.startswith(self._status, 9):
            self._fail(RuntimeError(self._buffer[:400].decode(errors="replace")))
            return
        self._buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or RuntimeError("the server closed the connection"))

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
            return
        if not self._done.done():
            self._done.set_result(None)
        self._transport.close()

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)


def post(address: str, path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def get(address: str, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()


async def send(address: str, requests: Sequence[bytes], *, connections: int = 64, status: int = 202) -> float:
    """Send all requests, each connection one at a time; return requests a second. Any other status is an error."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    queue = iter(requests)
    futures = [loop.create_future() for _ in range(connections)]
    begun = time.perf_counter()
    for future in futures:
        await loop.create_connection(partial(_Sender, queue, future, str(status).encode()), host, int(port))
    await asyncio.gather(*futures)
    return len(requests) / (time.perf_counter() - begun)
