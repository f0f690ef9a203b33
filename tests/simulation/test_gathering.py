"""Items gathered by group under faults on virtual time: replies lost, commits late or twice, workers killed and frozen.

Every item that was added is handed over in exactly one call, with others of its group and no more than allowed.
"""

import asyncio
from collections import Counter
from random import Random

import pytest

from tally.errors import TallyError
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.deferred import Registry
from tally.tasks.gather import Gather
from tally.tasks.pace import Bounds
from tally.tasks.system import TaskSystem
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.process import Process
from tally.testing.store import FakeStore

FAULTS = {
    "commit:failed-after": 0.04,
    "commit:reply-lost": 0.04,
    "commit:request-lost": 0.03,
    "commit:applied-late": 0.04,
    "commit:repeated": 0.04,
    "commit:aborted": 0.03,
    "commit:aborted-after": 0.03,
    "get:refused": 0.03,
    "query:refused": 0.03,
}
ITEMS = 36
RULE = Gather(max_size=4, max_delay=40, grace=10)
PATIENT = RetryPolicy(max_attempts=-1, min_backoff=1, max_backoff=20)


class Run:
    """One seeded run. `handed` are the items of each call, by its id."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.plan = Plan(self.random, FAULTS)
        self.clock = VirtualClock()
        self.store = FaultyStore(FakeStore(clock=self.clock), Network(self.plan))
        self.registry = Registry()
        self.handed: dict[str, tuple[str, list[int]]] = {}
        self.function = self.registry.task("f", queue="q", retry=PATIENT, gather=RULE)(self.f)

    async def f(self, group: str, items: list[int]) -> None:
        """Be the function: note what came; it may run again, with the same."""
        assert self.handed.setdefault(current().id, (group, items)) == (group, items)
        if self.random.random() < 0.2:
            raise ValueError("unlucky")

    def worker(self, name: str) -> Process:
        system = self.system()
        process = Process(name)
        process.spawn(system.sweeper(["q"]).run())
        process.spawn(system.executor({"q": 1}, bounds=Bounds(poll_min=1)).run(asyncio.Event()))
        return process

    def system(self) -> TaskSystem:
        return TaskSystem(self.registry, self.store, clock=self.clock, random=Random(self.random.random()), shards=1)

    async def main(self, loop: VirtualLoop) -> None:
        self.registry.connect(self.system().tasks)
        workers = [self.worker(f"w{n}") for n in range(3)]
        for number in range(ITEMS):
            added = False
            while not added:
                try:
                    await self.function.gather(f"g{number % 3}", number, name=f"n{number}")
                    added = True
                except TallyError:
                    await asyncio.sleep(1)
            await asyncio.sleep(self.random.random() * 6)
            victim = self.random.randrange(len(workers))
            if self.random.random() < 0.1:
                workers[victim].kill()
                workers[victim] = self.worker(f"w{number}")
            elif self.random.random() < 0.1 and not workers[victim].frozen:
                workers[victim].freeze()
                loop.call_later(self.random.random() * 90, loop.thaw, workers[victim])
        self.plan.quiet = True
        for _ in range(30):
            await asyncio.sleep(10)
            if sum(len(items) for _, items in self.handed.values()) >= ITEMS:
                break
        await asyncio.sleep(60)
        seen = Counter(item for _, items in self.handed.values() for item in items)
        assert seen == Counter(range(ITEMS)), "items lost, or in two calls"
        for group, items in self.handed.values():
            assert {f"g{item % 3}" for item in items} == {group}
            assert len(items) <= RULE.max_size
        for worker in workers:
            worker.kill()


@pytest.mark.parametrize("seed", range(3))
def test_each_item_is_handed_over_in_exactly_one_call(seed: int) -> None:
    run = Run(seed)
    with VirtualLoop(random=run.random) as loop:
        loop.run(run.main(loop))
    assert sum(run.plan.fired.values()) > 5, "too few faults to prove anything"
