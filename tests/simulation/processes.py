"""Functions and workers as processes of the simulated world, and what befalls them."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tally.clock import SECOND, Stamps
from tally.errors import Rejected, Unavailable
from tally.ports import Received, Upsert
from tally.testing.faults import FaultyPuller
from tally.testing.process import Process, no_process
from tally.votes.definitions import Definitions
from tally.votes.intake import Intake
from tally.votes.keyring import KeyRing
from tally.votes.microbatch import MicroBatcher
from tally.votes.worker import Worker as VoteWorker
from tests.simulation.truth import KEY
from tests.simulation.world import CLOCK_SKEW, World

T = TypeVar("T")
KEY_VERSION = "1"
LEASE_SECONDS = 10.5
SLOWER_SECONDS = 1.5


class Function:
    """A function instance: requests are tasks of its process. It is started again when it dies."""

    def __init__(self, world: World, number: int) -> None:
        self.name = f"function-{number}"
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
        self.batcher = MicroBatcher(self._world.publisher, self.clock, random)
        definitions = Definitions(self._world.faulty_store, self.clock, random, KeyRing({KEY_VERSION: KEY}))
        self.intake = Intake(definitions, self.batcher, Stamps(self.clock), "votes", lambda: random.randbytes(16))

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
        process, task = self.process, self._task
        process.spawn(_set(self._stop))
        await asyncio.wait([task], timeout=8)
        if not (task.done() or process.dead or process.frozen):
            self._world.truth.say(f"{process} has not ended 8 s after SIGTERM")
        process.kill()

    async def _run(self, process: Process, stop: asyncio.Event) -> None:
        world = self._world
        try:
            worker = VoteWorker(
                world.faulty_store,
                WatchedPuller(world, process),
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
    """A worker's puller, which sees that no lease ends while its worker lives, runs and does nothing about leases."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._puller = FaultyPuller(world.votes, world.network)
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
        if not (process.dead or process.frozen or self._out) and (process.thaws, self._calls) == before:
            self._world.truth.say(f"{process} let the lease {message.ack_id} end")


def describe(error: BaseException) -> str:
    """Return an error, or the first of a group, and where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = traceback.extract_tb(error.__traceback__)[-1:]
    return f"{error!r} at " + ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in place)


async def _set(stop: asyncio.Event) -> None:
    stop.set()


class Chaos:
    """Harms the hosts, their clocks and the services at seeded moments, and has them started again."""

    def __init__(self, world: World, functions: list[Function], workers: list[Worker]) -> None:
        self._world = world
        self._hosts: list[Function | Worker] = [*functions, *workers]
        self._functions = functions
        self._dice = world.random("chaos")
        self._poisons: list[Unavailable | Rejected] = [
            Unavailable("poisoned", status="PERMISSION_DENIED"),
            Unavailable("poisoned", status="INTERNAL"),
            Rejected("poisoned", status="INVALID_ARGUMENT"),
        ]
        self._jobs: set[asyncio.Task[None]] = set()

    async def run(self, until: float) -> None:
        harms = (
            (4, self._kill),
            (4, self._light_fuse),
            (3, self._freeze),
            (2, self._terminate),
            (1, self._step_clock),
            (2, self._break_service),
            (2, self._poison),
            (1, self._upgrade),
        )
        weights, choices = zip(*harms, strict=True)
        while self._world.loop.time() < until:
            await asyncio.sleep(self._dice.expovariate(0.6))
            (harm,) = self._dice.choices(choices, weights)
            self._start(harm())

    async def send_workers_away(self, seconds: float) -> None:
        """Kill all workers, and start none for some time."""
        self._world.note("no worker is left", "outage:workers")
        away = [host for host in self._hosts if isinstance(host, Worker)]
        self._hosts = [host for host in self._hosts if host not in away]
        for worker in away:
            if worker.process:
                worker.process.kill()
        await asyncio.sleep(seconds)
        self._hosts += away

    async def supervise(self) -> None:
        """Start again what died, after a while."""
        while True:
            await asyncio.sleep(self._dice.uniform(0.2, 2))
            for host in self._hosts:
                if not host.up:
                    if host.process is not None and (host.process.fuse or 0) < 0:
                        self._world.note(f"{host.process.name} died", "process:killed-between-awaits")
                    host.start()
                    self._world.note(f"start {host.process}")

    async def settle(self) -> None:
        """Wait until every harm is over."""
        while self._jobs:
            await asyncio.wait(self._jobs)

    def _start(self, harm: Coroutine[Any, Any, None]) -> None:
        job = asyncio.get_running_loop().create_task(harm)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def _victim(self) -> Function | Worker | None:
        host = self._dice.choice(self._hosts)
        return host if host.up and host.process is not None and not host.process.frozen else None

    async def _kill(self) -> None:
        if (host := self._victim()) and host.process:
            self._world.note(f"kill {host.process}", "process:killed")
            host.process.kill()

    async def _light_fuse(self) -> None:
        if (host := self._victim()) and host.process:
            host.process.fuse = self._dice.randrange(1, 400)

    async def _freeze(self) -> None:
        host = self._victim()
        if host is None or host.process is None:
            return
        zombie = host.process
        self._world.note(f"freeze {zombie}", "process:frozen")
        zombie.freeze()
        if replaced := self._dice.random() < 0.5:
            host.start()
        await asyncio.sleep(self._dice.uniform(1, 20))
        if not zombie.dead:
            self._world.note(f"thaw {zombie}", "process:came-back")
            self._world.loop.thaw(zombie)
        if replaced:
            await asyncio.sleep(self._dice.uniform(1, 6))
            zombie.kill()

    async def _terminate(self) -> None:
        if (host := self._victim()) and host.process:
            self._world.note(f"terminate {host.process}", "process:terminated")
            await host.terminate()

    async def _step_clock(self) -> None:
        host = self._dice.choice(self._functions)
        skew = round(self._dice.uniform(-CLOCK_SKEW, CLOCK_SKEW) * SECOND)
        self._world.note(f"step the clock of {host.name} to {skew / SECOND:+.1f} s", "clock:stepped")
        host.clock.step(skew - host.clock.skew)

    async def _break_service(self) -> None:
        plan = self._world.plan
        name, calls = self._dice.choice(
            (("store", ("get", "commit")), ("pubsub", ("publish", "pull", "acknowledge", "extend")), ("slow", ()))
        )
        self._world.note(f"{name} breaks down", f"outage:{name}")
        if name == "slow":
            plan.latency += SLOWER_SECONDS
        for call in calls:
            plan.break_down(call, Unavailable(f"{name} is down", status="UNAVAILABLE"))
        await asyncio.sleep(self._dice.uniform(1, 12))
        for call in calls:
            plan.break_down(call, None)
        if name == "slow":
            plan.latency -= SLOWER_SECONDS
        self._world.note(f"{name} is back")

    async def _poison(self) -> None:
        """Refuse every commit of one partition for a while; with INVALID_ARGUMENT once: it may well blame the votes."""
        shard = (("Shard", f"main:{self._dice.randrange(4)}"),)
        if shard in self._world.poisoned_shards:
            return
        error = self._poisons.pop() if len(self._poisons) > 1 else self._poisons[0]
        self._world.note(f"poison {shard}: {error.status}", "partition:poisoned")
        self._world.poisoned_shards[shard] = error
        await asyncio.sleep(self._dice.uniform(1, 15))
        del self._world.poisoned_shards[shard]

    async def _upgrade(self) -> None:
        """Let a worker of a later version have a ledger, then roll it back: ours must leave it alone meanwhile."""
        store, newer = self._world.store, self._world.truth.newer_shards
        shards = [shard for shard in store.of_kind("Shard") if not str(shard.key[0][1]).startswith("~")]
        if not shards or (shard := self._dice.choice(shards)).key in newer:
            return
        self._world.note(f"{shard.key} has a later format", "shard:newer-format")
        newer.add(shard.key)
        await store.write([Upsert(replace(shard, properties={**shard.properties, "format": 2}))])
        await asyncio.sleep(self._dice.uniform(1, 12))
        newer.remove(shard.key)
        await store.write([Upsert(shard)])
        self._world.note(f"{shard.key} is rolled back")
