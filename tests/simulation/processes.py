"""Functions and workers as processes of the simulated world: the shipped services over its faulty ports."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tally.clock import Stamps
from tally.ports import Received
from tally.testing.faults import FaultyPuller
from tally.testing.process import Process, no_process
from tally.testing.pubsub import FakeSubscription
from tally.votes.definitions import Definitions
from tally.votes.intake import Intake
from tally.votes.keyring import KeyRing
from tally.votes.microbatch import MicroBatcher
from tally.votes.stream import Streams
from tally.votes.worker import Worker as VoteWorker
from tests.simulation.truth import KEY
from tests.simulation.world import World

T = TypeVar("T")
KEY_VERSION = "1"
LEASE_SECONDS = 10.5


class Function:
    """A function instance: requests are tasks of its process. It is started again when it dies.

    In a world with two streams the first function knows of one, as before an upgrade.
    """

    def __init__(self, world: World, number: int) -> None:
        self.name = f"function-{number}"
        self._number = number
        self.clock = world.skewed_clock(world.random(f"{self.name}/clock"))
        self.process: Process | None = None
        self._world = world
        self._starts = 0

    @property
    def up(self) -> bool:
        return self.process is not None and not self.process.dead

    def start(self) -> None:
        self._starts += 1
        self.process = Process(f"{self.name}.{self._starts}")
        random = self._world.random(self.process.name)
        streams = Streams(self._world.topics[: self._number])
        self.batcher = MicroBatcher(self._world.publisher, self.clock, random, streams.linger_seconds)
        definitions = Definitions(self._world.faulty_store, self.clock, random, KeyRing({KEY_VERSION: KEY}))
        self.intake = Intake(definitions, self.batcher, Stamps(self.clock), streams, lambda: random.randbytes(16))

    def request(self, work: Callable[[Intake], Awaitable[T]]) -> asyncio.Task[T]:
        """Handle a request in this process; the task never ends if the process dies first."""
        assert self.process is not None

        async def handle() -> T:
            return await work(self.intake)

        return self.process.spawn(handle())

    async def terminate(self) -> None:
        """SIGTERM: publish the open batch, then exit."""
        assert self.process is not None
        process = self.process
        task = process.spawn(self.batcher.close())
        await asyncio.wait([task], timeout=8)
        process.kill()


class Worker:
    """A worker's process. It is started again when it dies."""

    def __init__(self, world: World, number: int) -> None:
        self.name = f"worker-{number}"
        self.process: Process | None = None
        self._world = world
        self._starts = 0
        dice = world.random(self.name)
        self._clock = world.skewed_clock(dice)
        self._votes = world.votes[(number - 1) % len(world.votes)]
        self._fold_from = dice.choice((2, 4, 8))
        self._memory = dice.choice((0, 10_000, 1_000_000))

    @property
    def up(self) -> bool:
        return self.process is not None and not self.process.dead

    def start(self) -> None:
        self._starts += 1
        self.process = Process(f"{self.name}.{self._starts}")
        if self._memory == 0:
            self._world.note(f"{self.process} keeps no idle partition", "worker:small-memory")
        self._stop = asyncio.Event()
        self._task = self.process.spawn(self._run(self.process, self._stop))

    async def terminate(self) -> None:
        """SIGTERM: the worker must end by itself within its time; what is left then is killed."""
        assert self.process is not None
        process, task, thaws = self.process, self._task, self.process.thaws
        process.spawn(_set(self._stop))
        await asyncio.wait([task], timeout=8)
        if not (task.done() or process.dead or process.frozen or process.thaws > thaws):
            self._world.truth.say(f"{process} has not ended 8 s after SIGTERM")
        process.kill()

    async def _run(self, process: Process, stop: asyncio.Event) -> None:
        world = self._world
        try:
            worker = VoteWorker(
                world.faulty_store,
                WatchedPuller(world, process, self._votes, stop),
                world.publisher,
                dead_letter_topic="votes-dead",
                clock=self._clock,
                random=world.random(process.name),
                fold_from=self._fold_from,
                memory=self._memory,
            )
            await worker.run(stop)
            if not stop.is_set():
                world.truth.say(f"{process} ended by itself")
        except Exception as error:
            if world.loop.is_closed():
                raise
            world.truth.say(f"{process} failed: {describe(error)}")
        process.dead = True


class WatchedPuller:
    """A worker's puller, which sees that no lease ends while its worker lives, runs and does nothing about leases.

    One that is told to stop extends none while it publishes its last dead letters: they may end then as well.
    """

    def __init__(self, world: World, process: Process, votes: FakeSubscription, stop: asyncio.Event) -> None:
        self._world = world
        self._process = process
        self._stop = stop
        self._puller = FaultyPuller(votes, world.network)
        self._calls = 0
        self._out = 0

    async def pull(self, max_messages: int) -> Sequence[Received]:
        messages = await self._puller.pull(max_messages)
        if any(message.message_id not in self._world.truth.newer for message in messages):
            before = (self._process.thaws, self._calls)
            self._world.loop.call_later(LEASE_SECONDS, self._check, messages[0], before, context=no_process())
        return messages

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        await self._call(self._puller.acknowledge(ack_ids))

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        await self._call(self._puller.extend(ack_ids, seconds))

    async def _call(self, call: Coroutine[Any, Any, None]) -> None:
        self._calls += 1
        self._out += 1
        try:
            await call
        finally:
            self._out -= 1

    def _check(self, message: Received, before: tuple[int, int]) -> None:
        process = self._process
        excused = process.dead or process.frozen or self._out or self._stop.is_set()
        if not excused and (process.thaws, self._calls) == before:
            self._world.truth.say(f"{process} let the lease {message.ack_id} end")


def describe(error: BaseException) -> str:
    """Return an error, or the first of a group, and where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = traceback.extract_tb(error.__traceback__)[-1:]
    return f"{error!r} at " + ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in place)


async def _set(stop: asyncio.Event) -> None:
    stop.set()
