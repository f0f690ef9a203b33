"""A small keep-alive HTTP client on asyncio streams: what a load needs, at a tenth of a full client's cost."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Self

import msgspec


class Reply(NamedTuple):
    status: int
    body: bytes

    def json(self) -> object:
        return msgspec.json.decode(self.body)


class Connection:
    """One connection to host:port, for one request at a time; opened, and opened again, on demand."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._stream:
            self._stream[1].close()
            self._stream = None

    async def request(
        self, method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a request and read the reply; raises OSError or EOFError when the connection breaks, and shuts it."""
        try:
            if self._stream is None:
                host, _, port = self._address.rpartition(":")
                self._stream = await asyncio.open_connection(host, int(port))
            reader, writer = self._stream
            head = f"{method} {path} HTTP/1.1\r\nHost: {self._address}\r\nContent-Length: {len(body)}\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
            writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            return await _reply(reader)
        except BaseException:
            self.close()
            raise


async def _reply(reader: asyncio.StreamReader) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head[9:12])
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return Reply(status, await reader.readexactly(int(length)) if length else b"")
