"""What the tests of the pull queue share: a queue on a fake store with latency, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from tally.errors import BackendError, Refused
from tally.ports import Committed, Key, Lookup, Page, Query, Store, Write
from tally.retry import RetryPolicy
from tally.tasks.queue import PullQueue
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore

T = TypeVar("T")


class Watched:
    """A store that takes its time, counts what is asked of it, and fails as told.

    `after` and `before` hold what the next commits raise, after being applied or instead of it; None: nothing.
    `meanwhile` holds what another process does just before the next commits arrive, each once.
    """

    def __init__(self, store: Store, latency: float = 0.0) -> None:
        self._store = store
        self.latency = latency
        self.scanned: list[int] = []
        self.calls = 0
        self.commits: list[Sequence[Write]] = []
        self.refused = 0
        self.before: list[BackendError | None] = []
        self.after: list[BackendError | None] = []
        self.meanwhile: list[Callable[[], Awaitable[object]]] = []

    async def get(self, keys: Sequence[Key]) -> Lookup:
        self.calls += 1
        await asyncio.sleep(self.latency)
        return await self._store.get(keys)

    async def commit(self, writes: Sequence[Write]) -> Committed:
        self.calls += 1
        self.commits.append(writes)
        await asyncio.sleep(self.latency / 2)
        if self.meanwhile:
            await self.meanwhile.pop(0)()
        if self.before and (error := self.before.pop(0)) is not None:
            raise error
        try:
            committed = await self._store.commit(writes)
        except Refused:
            self.refused += 1
            raise
        await asyncio.sleep(self.latency / 2)
        if self.after and (error := self.after.pop(0)) is not None:
            raise error
        return committed

    async def query(self, query: Query) -> Page:
        self.calls += 1
        await asyncio.sleep(self.latency)
        page = await self._store.query(query)
        self.scanned.append(len(page.entities))
        return page


class World:
    """A store, its clock, and queues on them that each draw their own random numbers."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.fake = FakeStore(clock=self.clock)
        self.store = Watched(self.fake)
        self.random = Random(1)

    def queue(self, name: str = "q", *, retry: RetryPolicy | None = None, shards: int | None = None) -> PullQueue:
        random = Random(self.random.random())
        return PullQueue(self.store, name, clock=self.clock, random=random, retry=retry, shards=shards)


def run(main: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    """Run a test's body in a world of its own, on virtual time."""
    with VirtualLoop() as loop:
        return loop.run(main(World()))
