"""What tests of both kinds of queues share: an embedded push queue with its loop, and pull queues beside it."""

import asyncio
from random import Random
from typing import Any

from tally.ports import HttpTask
from tally.tasks.deferred import Registry
from tally.tasks.dispatch import StoreDispatcher
from tally.tasks.pace import Bounds
from tally.tasks.push import Target
from tally.tasks.push_loop import PushLoop
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore

TARGET = Target(url="https://run.example", audience="https://run.example")
URL = "https://shop.example/mail"


class World:
    """A push queue as embedded has it: the store holds its tasks, a loop sends them; and a pull queue beside it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.registry = Registry()
        self.sent: list[int] = []
        self.takes = 0.0
        self.status = 200
        self.system = TaskSystem(
            self.registry,
            self.store,
            clock=self.clock,
            random=Random(1),
            dispatcher=StoreDispatcher(self.store, self.clock),
            target=TARGET,
            pushed=frozenset({"push"}),
            worker="w",
            shards=1,
        )
        self.registry.connect(self.system.tasks)
        self.queue = self.system.push("push")

    @property
    def now(self) -> int:
        return round(asyncio.get_running_loop().time())

    async def work(self, seconds: float) -> None:
        """Send, and lease from the pull queue, for a while."""
        receiver = self.system.receiver()

        async def send(task: HttpTask) -> int:
            if task.url.startswith(TARGET.url):
                await receiver.receive("push", task.headers, task.body)
                return 200
            self.sent.append(self.now)
            await asyncio.sleep(self.takes)
            return self.status

        stop = asyncio.Event()
        loop = PushLoop(self.store, send, clock=self.clock, random=Random(2))
        executor = self.system.executor({"pull": 1}, bounds=Bounds())
        working = [asyncio.ensure_future(each.run(stop)) for each in (loop, executor)]
        await asyncio.sleep(seconds)
        stop.set()
        await asyncio.gather(*working)

    async def add(self, **options: Any) -> str:
        return (await self.queue.add(Task(name="a", **options), url=URL)).status
