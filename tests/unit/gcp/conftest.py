"""A small gRPC server in place of Google's: it records what it is asked and answers what a test tells it to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest

from tally import config, gcp
from tally.config import Settings
from tally.ports import Backend

Answer = Callable[[bytes, Any], Awaitable[bytes]]


@dataclass
class FakeGoogle(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """`answers` maps a method's last name to what answers it; every other method gets an empty message."""

    address: str = ""
    called: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[bytes] = field(default_factory=list)

    def service(self, handler_call_details: Any) -> Any:
        details = handler_call_details
        method = details.method.rpartition("/")[2]
        metadata = {key: value for key, value in details.invocation_metadata if isinstance(value, str)}

        async def handle(request: bytes, context: Any) -> bytes:
            self.calls.append((method, metadata))
            self.requests.append(request)
            self.called.set()
            answer = self.answers.get(method)
            return await answer(request, context) if answer else b""

        return grpc.unary_unary_rpc_method_handler(handle)

    def reply(self, method: str, message: bytes) -> None:
        async def answer(_request: bytes, _context: Any) -> bytes:
            return message

        self.answers[method] = answer

    def fail(self, method: str, *codes: grpc.StatusCode) -> None:
        """Answer a method with these codes in turn, and with the last one from then on."""
        left = list(codes)

        async def answer(_request: bytes, context: Any) -> bytes:
            await context.abort(left.pop(0) if len(left) > 1 else left[0], "by plan")
            raise AssertionError("abort returns never")

        self.answers[method] = answer

    def hang(self, method: str) -> None:
        async def answer(_request: bytes, _context: Any) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

        self.answers[method] = answer

    def count(self, method: str) -> int:
        return [name for name, _ in self.calls].count(method)


@pytest.fixture
async def google() -> AsyncIterator[FakeGoogle]:
    fake = FakeGoogle()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((fake,))
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield fake
    await server.stop(0)


@pytest.fixture
def settings(google: FakeGoogle) -> Settings:
    hosts = {"PUBSUB_EMULATOR_HOST": google.address, "DATASTORE_EMULATOR_HOST": google.address}
    return config.load({**hosts, "TALLY_PROJECT": "the-project", "TALLY_DATABASE": "the-database"})


@pytest.fixture
async def backend(settings: Settings) -> AsyncIterator[Backend]:
    backend = await gcp.open(settings)
    yield backend
    await backend.close()
