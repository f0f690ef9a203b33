"""What the tests of the executor share: task functions, and workers that lease from pull queues, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

from tally.ports import Store
from tally.tasks.deferred import Registry
from tally.tasks.executor import PullExecutor
from tally.tasks.pace import Bounds
from tally.tasks.system import TaskSystem
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.registry = Registry()
        self.random = Random(1)
        self.system = self.process("w1")
        self.registry.connect(self.system.tasks)

    def process(self, worker: str, store: Store | None = None) -> TaskSystem:
        store = self.store if store is None else store
        return TaskSystem(self.registry, store, clock=self.clock, random=self.random, worker=worker, shards=1)

    def executor(
        self,
        weights: Mapping[str, int] | None = None,
        worker: str = "w1",
        bounds: Bounds | None = None,
        strict: bool = False,
    ) -> PullExecutor:
        return self.process(worker).executor(weights or {"default": 1}, bounds=bounds or Bounds(), strict=strict)

    async def work(self, *queues: str) -> None:
        """Work until the queues are empty."""
        await self.executor(dict.fromkeys(queues, 1)).run(asyncio.Event(), until_empty=True)

    async def serve(self, *queues: str, worker: str = "w1", seconds: float = 200) -> None:
        """Work for so long."""
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        await self.executor(dict.fromkeys(queues, 1), worker).run(stop)

    @asynccontextmanager
    async def working(self, worker: str = "w1", bounds: Bounds | None = None) -> AsyncIterator[None]:
        """Have a worker at work until the block is left."""
        stop = asyncio.Event()
        working = asyncio.ensure_future(self.executor(worker=worker, bounds=bounds).run(stop))
        try:
            yield
        finally:
            stop.set()
            await working
