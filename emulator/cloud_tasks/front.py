"""One port for gRPC and HTTP/1.1, as Google's emulators have: the first bytes of a connection tell which it is."""

import asyncio
from collections.abc import Callable
from typing import cast

PREFACE = b"PRI * HTTP/2.0"  # every HTTP/2 client begins so (RFC 9113, 3.4)
ENOUGH = 3  # no HTTP/1.1 method begins with PRI


class Front(asyncio.Protocol):
    """An accepted connection until its kind is known: then HTTP takes it over, or it is joined to the gRPC server."""

    def __init__(self, http: Callable[[], asyncio.Protocol], grpc_port: int) -> None:
        self._http = http
        self._grpc_port = grpc_port
        self._transport: asyncio.Transport | None = None
        self._seen = b""
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if len(self._seen) < ENOUGH or self._transport is None or self._joining is not None:
            return
        if self._seen[:ENOUGH] == PREFACE[:ENOUGH]:
            self._transport.pause_reading()
            self._joining = asyncio.get_running_loop().create_task(self._join(self._transport))
            return
        protocol = self._http()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._seen)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    async def _join(self, client: asyncio.Transport) -> None:
        try:
            server, far = await asyncio.get_running_loop().create_connection(Pipe, "127.0.0.1", self._grpc_port)
        except OSError:
            client.abort()
            return
        near = Pipe()
        near.peer, far.peer = server, client
        near.connection_made(client)
        client.set_protocol(near)
        server.write(self._seen)
        if self._transport is None:  # it went away meanwhile
            server.close()
        else:
            client.resume_reading()


class Pipe(asyncio.Protocol):
    """Hands what it reads to its peer, no faster than the peer takes it."""

    def __init__(self) -> None:
        self.peer: asyncio.Transport | None = None
        self._own: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._own = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.write(data)

    def eof_received(self) -> bool:
        if self.peer is not None and self.peer.can_write_eof():
            self.peer.write_eof()
        return True

    def connection_lost(self, _: Exception | None) -> None:
        if self.peer is not None:
            self.peer.close()

    # The transport below is full: the peer, which fills it, must stop reading.

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and not self.peer.is_closing():
            self.peer.resume_reading()
