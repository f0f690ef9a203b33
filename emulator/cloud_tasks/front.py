"""One port for gRPC and HTTP/1.1, as Google's emulators have: the first bytes of a connection tell which it is."""

import asyncio
from collections.abc import Callable
from typing import cast

PREFACE = b"PRI * HTTP/2.0"  # every HTTP/2 client begins so (RFC 9113, 3.4)
ENOUGH = 3  # no HTTP/1.1 method begins with PRI


class Door:
    """What stands behind the port, and the connections that are joined to the gRPC server."""

    def __init__(self, http: Callable[[], asyncio.Protocol], grpc_port: int) -> None:
        self.http = http
        self.grpc_port = grpc_port
        self.joined: set[asyncio.Transport] = set()

    async def close(self) -> None:
        for transport in self.joined:
            transport.abort()
        await asyncio.sleep(0)


class Front(asyncio.Protocol):
    """An accepted connection until its kind is known: then HTTP takes it over, or it is joined to the gRPC server."""

    def __init__(self, door: Door) -> None:
        self._door = door
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
        protocol = self._door.http()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._seen)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    async def _join(self, client: asyncio.Transport) -> None:
        loop, joined, port = asyncio.get_running_loop(), self._door.joined, self._door.grpc_port
        try:  # the server may speak at once, so its pipe knows the client from the start
            server, _ = await loop.create_connection(lambda: Pipe(client, joined), "127.0.0.1", port)
        except OSError:
            client.abort()
            return
        joined |= {client, server}
        client.set_protocol(Pipe(server, joined))
        server.write(self._seen)
        if self._transport is None:  # it went away meanwhile
            server.close()
        else:
            client.resume_reading()


class Pipe(asyncio.Protocol):
    """Hands what it reads to its peer, no faster than the peer takes it."""

    def __init__(self, peer: asyncio.Transport, joined: set[asyncio.Transport]) -> None:
        self._peer = peer
        self._joined = joined

    def data_received(self, data: bytes) -> None:
        self._peer.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._joined.discard(self._peer)
        self._peer.close()

    # The own transport is full. Its peer, which fills it, must stop reading.

    def pause_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()
