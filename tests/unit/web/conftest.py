import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tally import bootstrap, config
from tally.bootstrap import World
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tests.asgi import Client, Reply
from tests.trouble import TroubledPublisher, TroubledStore

VOTES = "/v1/polls/lunch/votes"
KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


class Stage:
    """Both functions over the fakes, on a loop with virtual time."""

    def __init__(self, store: TroubledStore, publisher: TroubledPublisher, clock: VirtualClock, client: Client) -> None:
        self.store = store
        self.publisher = publisher
        self.clock = clock
        self.client = client

    async def poll(self, poll_id: str = "lunch", **fields: object) -> Reply:
        definition = {"id": poll_id, "title": "Lunch", "options": [{"id": "red"}, {"id": "blue"}], **fields}
        return await self.client.post("/v1/polls", definition)

    async def vote(self, option: object = "red", voter: object = "v-1", poll: str = "lunch", **headers: str) -> Reply:
        return await self.client.post(f"/v1/polls/{poll}/votes", {"option": option, "voter": voter}, **headers)

    @property
    def ballots(self) -> list[tuple[str, str, str]]:
        """Return poll, option and ballot of each vote that is in the topic."""
        votes = []
        for message in self.publisher.messages:
            for group in msgspec.json.decode(message.data)["groups"]:
                ids = b64decode(group["ballots"])
                for place, choice in enumerate(group["choices"]):
                    ballot = ids[16 * place : 16 * place + 16].hex()
                    votes.append((group["poll"], group["options"][choice], ballot))
        return votes

    def time(self) -> float:
        return asyncio.get_running_loop().time()


Scene = Callable[[Stage], Coroutine[Any, Any, None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play(tally_loop: VirtualLoop, tally_backend: FakeBackend, tally_clock: VirtualClock, tmp_path: Path) -> Any:
    """Give a function that runs a scene on a stage."""
    settings = config.load({"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path)})
    world = World(clock=tally_clock, random=Random(1), token=lambda: b"sixteen bytes!!!")

    @asynccontextmanager
    async def stage() -> AsyncIterator[Stage]:
        await tally_backend.prepare()
        store = tally_backend.store = TroubledStore(tally_backend.store)
        publisher = tally_backend.publisher = TroubledPublisher(tally_backend.publisher)
        site = bootstrap.whole_site(settings, tally_backend, world)
        yield Stage(store, publisher, tally_clock, Client(site.app))
        store.error = publisher.error = None
        store.seconds = publisher.seconds = 0
        await site.close()

    async def run(scene: Scene) -> None:
        async with stage() as made:
            await scene(made)

    return lambda scene: tally_loop.run(run(scene))
