"""Pull queues under faults on virtual time: replies lost, commits applied late or twice, workers killed and frozen.

Nothing that was added is lost, no task is completed by two leases, and no name runs that was not added. A task that was
committed together with an order, by way of the outbox, is there if and only if the order is, and once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from tally.errors import LeaseExpired, TallyError
from tally.ports import Entity, Insert
from tally.retry import RetryPolicy
from tally.tasks.outbox import Outbox
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.process import Process
from tally.testing.store import FakeStore

FAULTS = {
    "commit:failed-after": 0.04,
    "commit:reply-lost": 0.03,
    "commit:request-lost": 0.02,
    "commit:applied-late": 0.03,
    "commit:repeated": 0.03,
    "commit:aborted": 0.03,
    "commit:aborted-after": 0.03,
    "commit:slow": 0.02,
    "get:refused": 0.03,
    "get:deferred": 0.05,
    "query:refused": 0.03,
}
TASKS = 60
ORDERS = 20
LEASE = 45
PATIENT = RetryPolicy(max_attempts=-1)


class Run:
    """One seeded run; `history` is what the workers were told, by the task's name."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.plan = Plan(self.random, FAULTS)
        self.clock = VirtualClock()
        self.fake = FakeStore(clock=self.clock)
        self.store = FaultyStore(self.fake, Network(self.plan))
        self.offered: set[str] = set()
        self.added: set[str] = set()
        self.completed: Counter[str] = Counter()
        self.holders: dict[str, set[str]] = {}
        self.orders: dict[str, str] = {}  # by the name of the task that is to be there if the order is

    def queue(self) -> PullQueue:
        return PullQueue(
            self.store, "q", clock=self.clock, random=Random(self.random.random()), retry=PATIENT, shards=4
        )

    async def produce(self, producer: int) -> None:
        queue = self.queue()
        for start in range(0, TASKS, 6):
            names = [f"p{producer}-{n}" for n in range(start, start + 6)]
            self.offered.update(names)
            while names:
                try:
                    outcomes = await queue.add_many(Task.text(name, name=name) for name in names)
                except TallyError:
                    continue
                self.added.update(name for name, each in zip(names, outcomes, strict=True) if each.status != "unknown")
                names = [name for name, each in zip(names, outcomes, strict=True) if each.status == "unknown"]

    def outbox(self) -> Outbox:
        return Outbox(self.store, lambda _: self.queue(), clock=self.clock, random=Random(self.random.random()))

    async def order(self) -> None:
        """Commit orders, each with its task; an unknown outcome is left as it is, and half of the entries to others."""
        outbox = self.outbox()
        for number in range(ORDERS):
            entry = outbox.entry("q", Task.text("ship"))
            self.orders[f"outbox-{entry.id}"] = f"o{number}"
            with suppress(TallyError):
                order = Entity(key=(("Order", f"o{number}"),), properties={"n": number})
                await self.store.commit([Insert(order), entry.write])
                if self.random.random() < 0.5:
                    await outbox.drain([entry.id])
            await asyncio.sleep(self.random.random() * 10)

    async def sweep(self) -> None:
        outbox = self.outbox()
        while True:
            await asyncio.sleep(3 + self.random.random() * 4)
            with suppress(TallyError):
                await outbox.sweep()

    def worker(self, name: str) -> Process:
        process = Process(name)
        process.spawn(self.work())
        process.spawn(self.sweep())
        return process

    async def work(self) -> None:
        queue = self.queue()
        while True:
            try:
                leases = await queue.lease(self.random.choice((1, 5, 20)), seconds=LEASE, wait=2)
                await asyncio.sleep(self.random.random() * LEASE * 0.7)
                for lease in leases[: len(leases) // 3]:
                    if self.random.random() < 0.3:
                        await queue.release(lease, error="unlucky")
                        leases.remove(lease)
                    elif self.random.random() < 0.3:
                        leases[leases.index(lease)] = await queue.extend(lease, LEASE)
                for lease, status in zip(leases, await queue.complete_many(leases), strict=True):
                    if status == "done":
                        self.completed[lease.name] += 1
                        self.holders.setdefault(lease.name, set()).add(lease.token)
            except LeaseExpired:
                continue
            except TallyError:
                await asyncio.sleep(1)

    async def main(self, loop: VirtualLoop) -> None:
        workers = [self.worker(f"worker-{n}") for n in range(4)]
        producers = [asyncio.create_task(self.produce(n)) for n in range(2)]
        producers.append(asyncio.create_task(self.order()))
        for _ in range(12):
            await asyncio.sleep(self.random.random() * 20)
            victim = self.random.randrange(len(workers))
            if self.random.random() < 0.5:
                workers[victim].kill()
                workers[victim] = self.worker(f"{workers[victim].name}+")
            elif not workers[victim].frozen:
                workers[victim].freeze()
                asyncio.get_running_loop().call_later(self.random.random() * 2 * LEASE, loop.thaw, workers[victim])
        await asyncio.gather(*producers)
        self.plan.quiet = True
        for _ in range(20):
            await asyncio.sleep(LEASE / 2)
            if len(self.completed) == len(self.wanted()):
                break
        for worker in workers:
            worker.kill()
        await self.judge()

    def wanted(self) -> set[str]:
        """Return the names of all tasks that must be there: those added, and those of the orders that are there."""
        placed = {str(order.key[-1][1]) for order in self.fake.of_kind("Order")}
        return self.offered | {task for task, order in self.orders.items() if order in placed}

    async def judge(self) -> None:
        queue = PullQueue(self.fake, "q", clock=self.clock, random=self.random, retry=PATIENT)
        left = {info.name for info in await queue.list(limit=1_000)}
        rows = {str(row.properties["name"]): row for row in self.fake.of_kind("Task")}
        wanted = self.wanted()
        assert self.added == self.offered, "tasks of which nobody knows whether they were added"
        assert not wanted - rows.keys(), f"{len(wanted - rows.keys())} tasks lost"
        assert not rows.keys() - wanted, f"{len(rows.keys() - wanted)} tasks made up"
        assert not self.fake.of_kind("TaskOutbox"), "entries left in the outbox"
        assert left == set(), "tasks that nobody finished"
        assert not await queue.list("dead"), "dead letters of a queue that never gives up"
        assert all(len(tokens) == 1 for tokens in self.holders.values()), "completed by two leases"
        assert max(self.completed.values()) == 1, "completed twice"
        for name, tokens in self.holders.items():
            assert rows[name].properties["settled_by"] in tokens, f"{name} was completed by another than was told so"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`wrong`: what was seen to be wrong; `faults`: how many befell the run."""

    wrong: tuple[str, ...]
    faults: int


def play(main: Callable[[VirtualLoop], Coroutine[Any, Any, None]], plan: Plan, random: Random) -> Outcome:
    """Run in virtual time; what is raised there is what was wrong."""
    wrong: tuple[str, ...] = ()
    try:
        with VirtualLoop(random=random) as loop:
            loop.run(main(loop))
    except Exception as error:
        wrong = (str(error) or repr(error),)
    return Outcome(wrong, sum(plan.fired.values()))


def simulate(seed: int) -> Outcome:
    run = Run(seed)
    return play(run.main, run.plan, run.random)
