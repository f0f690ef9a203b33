"""The emulator in the test's own event loop, the official client on it, and a target that records what it is sent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web
from google.api_core.exceptions import NotFound
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

from emulator.cloud_tasks.server import Options, emulator

PARENT = "projects/tally-local/locations/us-central1"
QUEUE = f"{PARENT}/queues/q"
START = 1_800_000_000 * 1_000_000
LATER = {"seconds": 1_800_000_000 + 3_600}
URL = "http://127.0.0.1:1/"  # where nobody listens


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request that the target got; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Target:
    """Answers with `script`'s statuses in turn, then 200. A callable status makes the whole response."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    script: list[int | Callable[[], Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(method=request.method, path=request.raw_path, headers=headers, body=await request.read()))
        status = self.script.pop(0) if self.script else 200
        if callable(status):
            response: web.StreamResponse = await status()
            return response
        return web.Response(status=status, headers=self.headers)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    made = Target()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


class Sut:
    """A running emulator with the means to talk to it."""

    def __init__(self, address: str, client: tasks_v2.CloudTasksAsyncClient, http: aiohttp.ClientSession) -> None:
        self.address = address
        self.client = client
        self.http = http

    async def create(self, url: str, *, queue: str = QUEUE, **fields: Any) -> Any:
        """Create an HTTP task; `http` among the fields adds to its HttpRequest."""
        request = {"url": url, **fields.pop("http", {})}
        return await self.client.create_task(parent=queue, task={"http_request": request, **fields})

    async def set_queue(self, **fields: Any) -> None:
        await self.client.update_queue(queue={"name": QUEUE, **fields})

    async def gone(self, name: str) -> bool:
        try:
            await self.client.get_task(name=name)
        except NotFound:
            return True
        return False

    async def post(self, path: str, body: Any = None) -> Any:
        async with self.http.post(f"http://{self.address}{path}", json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json() if response.content_type == "application/json" else await response.text()

    async def get(self, path: str) -> Any:
        async with self.http.get(f"http://{self.address}{path}") as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def step(self, seconds: float = 0) -> int:
        """Step the clock and return the number of attempts that were sent meanwhile."""
        return int((await self.post("/clock", {"seconds": seconds}))["dispatched"])


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start emulators with the given options (a manual clock unless told otherwise)."""
    async with AsyncExitStack() as stack:

        async def begin(**options: Any) -> Sut:
            chosen: dict[str, Any] = {"manual_clock": True, "start": START, "queues": ("q",)} | options
            running = await stack.enter_async_context(emulator(Options(**chosen)))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(running.address))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            client = tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))
            return Sut(running.address, client, http)

        yield begin


@pytest.fixture
async def sut(start: Start) -> Sut:
    started: Sut = await start()
    return started


async def eventually(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until something holds, without a clock that can be stepped."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  # the condition is another process's or a server's
            await asyncio.sleep(0.005)
