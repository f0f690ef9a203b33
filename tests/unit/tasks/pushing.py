"""What the tests of push queues share: a queue, its functions, and a service that sends, in virtual time."""

import asyncio
from random import Random

from tally.clock import SECOND
from tally.errors import Forbidden, Unavailable
from tally.ports import HttpTask
from tally.tasks.deferred import Registry
from tally.tasks.push import PushQueue, Target
from tally.tasks.receiver import PushReceiver
from tally.tasks.system import TaskSystem
from tally.testing.clock import VirtualClock
from tally.testing.dispatcher import FakeDispatcher
from tally.testing.store import FakeStore

DAY = 86_400
ACCOUNT = "tasks@p.iam.gserviceaccount.com"
TARGET = Target(url="https://run.example/base", audience="https://run.example")


class Verifier:
    """Tokens are "account audience"."""

    async def verify(self, token: str, audience: str) -> str:
        account, _, aud = token.partition("|")
        if aud != audience:
            raise Forbidden("wrong audience")
        return account


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.dispatcher = FakeDispatcher(self.clock)
        self.registry = Registry()
        self.sent: list[tuple[int, HttpTask]] = []
        self.requests: list[HttpTask] = []
        self.statuses: list[int] = []
        self.system = TaskSystem(
            self.registry,
            self.store,
            clock=self.clock,
            random=Random(1),
            dispatcher=self.dispatcher,
            target=TARGET,
            verifier=Verifier(),
            callers=frozenset({ACCOUNT}),
            pushed=frozenset({"push"}),
            send=self.send,
            worker="w",
        )
        self.registry.connect(self.system.tasks)
        self.queue: PushQueue = self.system.push("push")

    async def send(self, task: HttpTask) -> int:
        self.requests.append(task)
        return self.statuses.pop(0)

    async def deliver(self, receiver: PushReceiver, task: HttpTask) -> None:
        headers = {**task.headers, "authorization": f"Bearer {ACCOUNT}|{task.audience}"}
        await receiver.receive("push", headers, task.body)

    async def work(self) -> None:
        """Be Cloud Tasks until nothing is left: send at the time, again a second after a failure."""
        receiver = self.system.receiver()
        failures = 0
        while (due := self.dispatcher.next()) is not None:
            queue, task = due
            await asyncio.sleep(max(0, (task.at or 0) - self.clock.now()) / SECOND)
            self.sent.append((self.clock.now(), task))
            try:
                if task.url.startswith(TARGET.url):
                    await self.deliver(receiver, task)
            except Unavailable:
                failures += 1
                assert failures < 100
                await asyncio.sleep(1)
                continue
            self.dispatcher.take(queue, task.id)
