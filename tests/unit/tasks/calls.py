"""What the tests of calls share: functions, their queue and its workers, on fakes and in virtual time."""

import asyncio
import heapq
from dataclasses import replace
from random import Random
from typing import Any

from tally.clock import SECOND
from tally.errors import Unavailable
from tally.tasks.call import Delivery
from tally.tasks.client import Tasks
from tally.tasks.context import current
from tally.tasks.deferred import Deferred, Registry
from tally.tasks.pool import WorkerPool
from tally.tasks.runner import Runner
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore


class Line:
    """A carrier and its workers: brings each delivery at its time, and again when the runner says so."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.waiting: list[tuple[int, int, Delivery]] = []
        self.names: set[str] = set()
        self.fail = 0
        self.count = 0

    async def carry(self, delivery: Delivery) -> None:
        self.count += 1
        if delivery.name not in self.names:
            self.names.add(delivery.name)
            heapq.heappush(self.waiting, (delivery.due, self.count, delivery))
        if self.fail:
            self.fail -= 1
            raise Unavailable("the reply was lost")

    async def hurry(self, name: str) -> bool:
        for place, (_, count, delivery) in enumerate(self.waiting):
            if delivery.name == name:
                self.waiting[place] = (self.clock.now(), count, delivery)
                heapq.heapify(self.waiting)
                return True
        return False

    async def work(self, runner: Runner) -> None:
        """Bring everything until nothing is left."""
        while self.waiting:
            due, _, delivery = heapq.heappop(self.waiting)
            await asyncio.sleep(max(0, due - self.clock.now()) / SECOND)
            again = await runner.run(delivery)
            if again is not None:
                if again.hop is None:
                    self.names.discard(delivery.name)
                await self.carry(replace(delivery, due=again.at, hop=again.hop))


def counted(registry: Registry, name: str = "t", *, queue: str = "default") -> tuple[Deferred[[], Any], list[int]]:
    """Register a function that does nothing; return it, and a list that gets the number of each attempt."""
    runs: list[int] = []

    async def function() -> None:
        runs.append(current().attempt)

    return registry.task(name, queue=queue)(function), runs


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.registry = Registry()
        self.line = Line(self.clock)
        self.random = Random(1)
        self.tasks = Tasks(self.registry, self.store, lambda _: self.line, clock=self.clock, random=self.random)
        self.registry.connect(self.tasks)

    def runner(self, worker: str = "w1") -> Runner:
        return Runner(
            self.registry,
            self.tasks.runs,
            self.store,
            WorkerPool(10),
            clock=self.clock,
            random=self.random,
            worker=worker,
        )

    async def work(self) -> None:
        await self.line.work(self.runner())

    async def parked(self) -> list[tuple[str, str]]:
        return [(parked.call, parked.reason) async for parked in self.tasks.parked()]
