"""Task functions under faults on virtual time: replies lost, commits late or twice, workers killed and frozen.

Every call that was made ends, with the result of its function; no run is at work in two processes at once, and no more
runs at once than the function's limit allows, unless one was suspended; no run is recorded as ended twice.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tally.errors import TallyError
from tally.retry import RetryPolicy
from tally.tasks.context import Retry, current
from tally.tasks.deferred import Registry
from tally.tasks.pace import Bounds
from tally.tasks.push import Target
from tally.tasks.results import Handle
from tally.tasks.run import State
from tally.tasks.semaphore import Concurrent
from tally.tasks.system import TaskSystem
from tally.testing.clock import VirtualClock
from tally.testing.dispatcher import FakeDispatcher
from tally.testing.faults import FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.process import Process
from tally.testing.process import current as current_process
from tally.testing.store import FakeStore
from tests.simulation.queues import Outcome, play

FAULTS = {
    "commit:failed-after": 0.03,
    "commit:reply-lost": 0.02,
    "commit:request-lost": 0.02,
    "commit:applied-late": 0.03,
    "commit:repeated": 0.03,
    "commit:aborted": 0.03,
    "commit:aborted-after": 0.03,
    "get:refused": 0.03,
    "get:deferred": 0.05,
    "query:refused": 0.03,
}
CALLS = 40
AT_ONCE = 6
PATIENT = RetryPolicy(max_attempts=-1, min_backoff=1, max_backoff=20)


@dataclass
class Run:
    """One seeded run. `at_work` holds the processes in which each run is at work."""

    seed: int
    queue: str
    at_work: dict[str, list[Process | None]] = field(default_factory=dict)
    ran: Counter[int] = field(default_factory=Counter)
    overlaps: int = 0
    places: list[Process | None] = field(default_factory=list)
    crowds: int = 0
    suspended: set[Process] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.plan = Plan(self.random, FAULTS)
        self.clock = VirtualClock()
        self.fake = FakeStore(clock=self.clock)
        self.store = FaultyStore(self.fake, Network(self.plan))
        self.dispatcher = FakeDispatcher(self.clock)
        self.registry = Registry()
        limit = Concurrent("k", AT_ONCE)
        self.function = self.registry.task("f", queue=self.queue, retry=PATIENT, timeout=90, limit=limit)(self.f)

    async def f(self, number: int) -> int:
        """Be the function: take a while, fail now and then; note who else is at it."""
        run_id = current().id
        here = self.at_work.setdefault(run_id, [])
        self.overlaps += any(other is None or not (other.dead or other in self.suspended) for other in here)
        process = current_process()
        here.append(process)
        self.crowds += self.others_at_work() >= AT_ONCE
        self.places.append(process)
        try:
            await asyncio.sleep(self.random.random() * 70)
            if self.random.random() < 0.2:
                raise Retry("unlucky") if self.random.random() < 0.5 else ValueError("unlucky")
            self.ran[number] += 1
            return 2 * number
        finally:
            here.remove(process)
            self.places.remove(process)

    def others_at_work(self) -> int:
        """Count the runs at work, but for those of the dead, and of the suspended, who may not know that it is over."""
        return sum(other is None or not (other.dead or other in self.suspended) for other in self.places)

    def system(self, name: str) -> TaskSystem:
        return TaskSystem(
            self.registry,
            self.store,
            clock=self.clock,
            random=Random(self.random.random()),
            dispatcher=self.dispatcher,
            target=Target(url="http://run"),
            pushed=frozenset({"pushed"}),
            worker=name,
            shards=2,
        )

    async def work(self, name: str) -> None:
        """Be a worker, or an instance of `run_task` with a share of what Cloud Tasks sends."""
        system = self.system(name)
        if self.queue != "pushed":
            await system.executor({self.queue: 1}, bounds=Bounds(at_least=8, at_most=8)).run(asyncio.Event())
            return
        receiver = system.receiver()
        out: set[asyncio.Task[None]] = set()

        async def deliver(queue: str, task_id: str) -> None:
            task = self.dispatcher.tasks[(queue, task_id)]
            self.sent.add(task_id)
            try:
                async with asyncio.timeout(30):  # a deadline that slow runs miss: the answer is not waited for
                    await asyncio.shield(asyncio.ensure_future(receiver.receive(queue, dict(task.headers), task.body)))
                self.dispatcher.take(queue, task_id)
            except (TallyError, TimeoutError):
                await asyncio.sleep(2)
            finally:
                self.sent.discard(task_id)

        while True:
            for (queue, task_id), task in list(self.dispatcher.tasks.items()):
                if task_id not in self.sent and (task.at or 0) <= self.clock.now() and len(out) < 8:
                    sending = asyncio.ensure_future(deliver(queue, task_id))
                    out.add(sending)
                    sending.add_done_callback(out.discard)
                    break
            await asyncio.sleep(0.5)

    async def main(self, loop: VirtualLoop) -> None:
        self.sent: set[str] = set()
        self.registry.connect(self.system("producer").tasks)
        workers = [Process(f"w{n}") for n in range(3)]
        for worker in workers:
            worker.spawn(self.work(worker.name))
        handles: dict[int, Handle] = {}
        for number in range(CALLS):
            while number not in handles:
                try:
                    handles[number] = await self.function.later(name=f"n{number}").call(number)
                except TallyError:
                    await asyncio.sleep(1)
            if number % 4 == 3:
                await self.mishap(workers, loop)
        self.plan.quiet = True
        results = [await handle.result(600) for handle in handles.values()]
        assert results == [2 * number for number in handles], "a call has another's result"
        assert set(self.ran) == set(handles), "a result without its function"
        assert self.overlaps == 0, "a run at work in two processes"
        assert self.crowds == 0, "more at work at once than the limit allows"
        for handle in handles.values():
            status = await handle.status()
            assert status.state is State.DONE, f"a run is {status.state}"
            assert [attempt.outcome for attempt in status.attempts].count("done") == 1, "a run ended twice"
        for worker in workers:
            worker.kill()

    async def mishap(self, workers: list[Process], loop: VirtualLoop) -> None:
        await asyncio.sleep(self.random.random() * 15)
        victim = self.random.randrange(len(workers))
        if self.random.random() < 0.6:
            workers[victim].kill()
            self.sent.clear()
            workers[victim] = Process(f"{workers[victim].name}+")
            workers[victim].spawn(self.work(workers[victim].name))
        elif not workers[victim].frozen:
            self.suspended.add(workers[victim])  # it wakes up with a claim that is over, and learns so by a beat
            workers[victim].freeze()
            loop.call_later(self.random.random() * 100, loop.thaw, workers[victim])


def simulate(seed: int) -> Outcome:
    """Run one seed: the even ones on a pull queue, the odd ones on a push queue."""
    run = Run(seed // 2, "pushed" if seed % 2 else "pulled")
    return play(run.main, run.plan, run.random)
