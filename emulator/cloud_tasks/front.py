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
        loop = asyncio.get_running_loop()
        try:  # the server may speak at once, so its pipe knows the client from the start
            server, _ = await loop.create_connection(lambda: Pipe(client), "127.0.0.1", self._grpc_port)
        except OSError:
            client.abort()
            return
        client.set_protocol(Pipe(server))
        server.write(self._seen)
        if self._transport is None:  # it went away meanwhile
            server.close()
        else:
            client.resume_reading()


class Pipe(asyncio.Protocol):
    """Hands what it reads to its peer, no faster than the peer takes it."""

    def __init__(self, peer: asyncio.Transport) -> None:
        self._peer = peer

    def data_received(self, data: bytes) -> None:
        self._peer.write(data)

    def eof_received(self) -> bool:
        if self._peer.can_write_eof():
            self._peer.write_eof()
        return True

    def connection_lost(self, _: Exception | None) -> None:
        self._peer.close()

    # The own transport is full. Its peer, which fills it, must stop reading.

    def pause_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()
