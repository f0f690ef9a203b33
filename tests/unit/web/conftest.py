from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tally import bootstrap, config
from tally.bootstrap import World
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tests.asgi import Client, Reply


class Stage:
    """Both functions over the fakes, on a loop with virtual time."""

    def __init__(self, backend: FakeBackend, clock: VirtualClock, client: Client) -> None:
        self.backend = backend
        self.clock = clock
        self.client = client

    async def poll(self, poll_id: str = "lunch", **fields: object) -> Reply:
        definition = {"id": poll_id, "title": "Lunch", "options": [{"id": "red"}, {"id": "blue"}], **fields}
        return await self.client.post("/v1/polls", definition)

    async def vote(self, option: object = "red", voter: object = "v-1", poll: str = "lunch", **headers: str) -> Reply:
        return await self.client.post(f"/v1/polls/{poll}/votes", {"option": option, "voter": voter}, **headers)

    async def messages(self) -> list[bytes]:
        """Return the messages that are on the topic now."""
        return [received.data for received in await self.backend.puller("votes").pull(1_000)]


Scene = Callable[[Stage], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tally_loop: VirtualLoop, tally_backend: FakeBackend, tally_clock: VirtualClock, tmp_path: Path) -> Any:
    """Give a function that runs a scene on a stage."""
    settings = config.load({"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path)})
    world = World(clock=tally_clock, random=Random(1), token=lambda: b"sixteen bytes!!!")

    @asynccontextmanager
    async def stage() -> AsyncIterator[Stage]:
        await tally_backend.prepare()
        site = bootstrap.whole_site(settings, tally_backend, world)
        yield Stage(tally_backend, tally_clock, Client(site.app))
        await site.close()

    async def run(scene: Scene) -> None:
        async with stage() as made:
            await scene(made)

    return lambda scene: tally_loop.run(run(scene))
