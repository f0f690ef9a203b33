"""Pull queues under faults on virtual time: replies lost, commits applied late or twice, workers killed and frozen.

Nothing that was added is lost, no task is completed by two leases, and no name runs that was not added.
"""

import asyncio
from collections import Counter
from random import Random

import pytest

from tally.errors import LeaseExpired, TallyError
from tally.retry import RetryPolicy
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
        workers = [Process(f"worker-{n}") for n in range(4)]
        for worker in workers:
            worker.spawn(self.work())
        producers = [asyncio.create_task(self.produce(n)) for n in range(2)]
        for _ in range(12):
            await asyncio.sleep(self.random.random() * 20)
            victim = self.random.randrange(len(workers))
            if self.random.random() < 0.5:
                workers[victim].kill()
                workers[victim] = Process(f"{workers[victim].name}+")
                workers[victim].spawn(self.work())
            elif not workers[victim].frozen:
                workers[victim].freeze()
                asyncio.get_running_loop().call_later(self.random.random() * 2 * LEASE, loop.thaw, workers[victim])
        await asyncio.gather(*producers)
        self.plan.quiet = True
        for _ in range(20):
            await asyncio.sleep(LEASE / 2)
            if len(self.completed) == len(self.offered):
                break
        for worker in workers:
            worker.kill()
        await self.judge()

    async def judge(self) -> None:
        queue = PullQueue(self.fake, "q", clock=self.clock, random=self.random, retry=PATIENT)
        left = {info.name for info in await queue.list(limit=1_000)}
        rows = {str(row.properties["name"]): row for row in self.fake.of_kind("Task")}
        assert self.added == self.offered == rows.keys(), "tasks lost or made up"
        assert left == set(), "tasks that nobody finished"
        assert not await queue.list("dead")
        assert all(len(tokens) == 1 for tokens in self.holders.values()), "completed by two leases"
        assert max(self.completed.values()) == 1
        for name, tokens in self.holders.items():
            assert rows[name].properties["settled_by"] in tokens, f"{name} was completed by another than was told so"


@pytest.mark.parametrize("seed", range(10))
def test_no_task_is_lost_and_none_is_completed_by_two_leases(seed: int) -> None:
    run = Run(seed)
    with VirtualLoop(random=run.random) as loop:
        loop.run(run.main(loop))
    assert sum(run.plan.fired.values()) > 5, "too few faults to prove anything"
