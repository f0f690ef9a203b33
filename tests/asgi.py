"""A client that calls an ASGI application, as a server would: for tests of routes without a socket."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from starlette.types import ASGIApp, Message


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Client:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.request("GET", path, headers=headers)

    async def post(self, path: str, value: object, **headers: str) -> Reply:
        return await self.send("POST", path, value, **headers)

    async def send(self, method: str, path: str, value: object, **headers: str) -> Reply:
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return await self.request(method, path, [body], {"content-type": "application/json", **headers})

    async def request(
        self, method: str, path: str, body: Iterable[bytes] = (b"",), headers: dict[str, str] | None = None
    ) -> Reply:
        """Send a request whose body comes in these chunks. Header names: underscores stand for hyphens."""
        target, _, query = path.partition("?")
        given = {name.replace("_", "-").lower(): value for name, value in (headers or {}).items()}
        scope = {
            "type": "http",
            "method": method,
            "path": target,
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        chunks = iter(body)
        following: bytes | None = next(chunks)
        sent: list[Message] = []

        async def receive() -> Message:
            nonlocal following
            assert following is not None, "the application reads past the end"
            chunk, following = following, next(chunks, None)
            return {"type": "http.request", "body": chunk, "more_body": following is not None}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start, end = sent
        replied = {name.decode(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], replied, end["body"])
