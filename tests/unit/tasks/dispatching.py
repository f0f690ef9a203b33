"""What the tests of embedded's push queues share: a queue in a store, and a loop that sends to a service that obeys."""

import asyncio
from random import Random
from typing import Any

from tally.clock import SECOND
from tally.errors import InvalidInput
from tally.ports import HttpTask
from tally.tasks.dispatch import StoreDispatcher
from tally.tasks.push_loop import PushLoop
from tally.tasks.rate import RateLimits
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore


class World:
    """The service takes `takes` seconds and answers `statuses` in turn, then 200; 0: it is not there, 400: it raises.

    `sent` are (seconds since the work began, task's id).
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.dispatcher = StoreDispatcher(self.store, self.clock)
        self.stop = asyncio.Event()
        self.sent: list[tuple[float, str]] = []
        self.statuses: list[int] = []
        self.takes = 0.0
        self.at_once = self.most = 0
        self.begin = 0

    async def send(self, task: HttpTask) -> int:
        self.sent.append(((self.clock.now() - self.begin) / SECOND, task.id))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.at_once -= 1
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 0:
            raise OSError("connection refused")
        if status == 400:
            raise InvalidInput("no good")
        return status

    def loop(self, seed: int = 1, limits: dict[str, RateLimits] | None = None) -> PushLoop:
        return PushLoop(self.store, self.send, clock=self.clock, random=Random(seed), limits=limits)

    async def work(self, seconds: float, **limits: RateLimits) -> None:
        self.begin = self.clock.now()
        self.stop.clear()
        working = asyncio.ensure_future(self.loop(1, limits).run(self.stop))
        await asyncio.sleep(seconds)
        self.stop.set()
        await working

    async def add(self, task_id: str, *, delay: float = 0, **options: Any) -> None:
        at = self.clock.now() + round(delay * SECOND)
        await self.dispatcher.create("q", HttpTask(id=task_id, url="http://a/", headers={}, at=at, **options))

    def times(self) -> list[float]:
        return [round(at) for at, _ in self.sent]
