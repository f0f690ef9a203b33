"""Leases tasks from pull queues and brings them to the runner.

    queue = PullQueue(store, "high", …)
    await PullExecutor([Source(queue, weight=4)], runner, pool, clock=…, random=…).run(stop)

A lease is extended for as long as its task runs, and finished by its token; the run itself is guarded by its record,
so a lease that is lost meanwhile costs a second delivery, not a second run at once.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tally.clock import SECOND, Clock, from_datetime, to_datetime
from tally.errors import BackendError, InvalidInput, LeaseExpired
from tally.logs import event
from tally.tasks.call import PATIENT, Delivery
from tally.tasks.lease import Lease
from tally.tasks.pace import LOOK_MIN, Bounds, concurrency, look, poll, shares
from tally.tasks.pool import WorkerPool
from tally.tasks.queue import PullQueue
from tally.tasks.runner import Runner
from tally.tasks.stats import QueueStats
from tally.tasks.task import JSON, Task

LEASE_SECONDS = 60.0
GRACE = 5.0  # seconds that running tasks have after a stop
LATE = 300.0  # seconds that the first task of a queue may be past its time before the log says so, …
SAID = 30.0  # … again after this many
_SICK = 5.0  # seconds that a delivery waits when the store could not be asked


class PullCarrier:
    """Takes calls into a pull queue."""

    def __init__(self, queue: PullQueue) -> None:
        self._queue = queue

    async def carry(self, delivery: Delivery) -> None:
        task = Task(
            payload=delivery.payload,
            content_type=JSON,
            name=delivery.name,
            tag=delivery.tag,
            eta=to_datetime(delivery.due),
            retry=PATIENT,
            headers=delivery.headers,
        )
        await self._queue.add(task)

    async def hurry(self, name: str) -> bool:
        return await self._queue.run_now(name)


@dataclass(frozen=True, slots=True)
class Source:
    """A queue that a worker leases from, and its weight (1 to 100) among the others."""

    queue: PullQueue
    weight: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= 100:
            raise InvalidInput(f"weight {self.weight} of queue {self.queue.name}: want 1 to 100")


@dataclass(eq=False, slots=True)
class _Held:
    source: Source
    lease: Lease
    work: "asyncio.Task[None] | None" = field(default=None)


class PullExecutor:
    """Leases from its sources and runs what it leased, until told to stop. `strict`: the heaviest always first.

    `seen` holds each queue's numbers as of the last look, every 5 s, or up to 30 s while all are empty.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        runner: Runner,
        pool: WorkerPool,
        *,
        clock: Clock,
        bounds: Bounds | None = None,
        strict: bool = False,
    ) -> None:
        if not sources:
            raise InvalidInput("no queue to lease from")
        self._sources = tuple(sources)
        self._runner = runner
        self._pool = pool
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._strict = strict
        self._limit = self._bounds.at_least
        self.seen: dict[str, QueueStats] = {}
        self._held: set[_Held] = set()
        self._ended = asyncio.Event()
        self._found = asyncio.Event()  # a lease brought something since the last look
        self._turn = 0
        self._said = -SAID
        self._full_until = 0  # (µs) the last of those that wait for a place is back in its queue by then

    @property
    def running(self) -> int:
        return len(self._held)

    @property
    def limit(self) -> int:
        return self._limit

    async def run(self, stop: asyncio.Event, *, at_once: asyncio.Event | None = None, until_empty: bool = False) -> int:
        """Work until `stop`, or until the queues give nothing and nothing runs; return the exit code, 0.

        What waits for a place of its function's limit is waited for, what waits for its time is not.

        After a stop: no new lease, GRACE seconds for what runs, then it is cancelled and its tasks given back; with
        `at_once` no such seconds, and what a lease is just bringing comes again when it ends.
        """
        hurried = asyncio.create_task((at_once or asyncio.Event()).wait())
        self._pool.resize(self._limit)
        event("executor-started", queues=[source.queue.name for source in self._sources], strict=self._strict)
        helpers = [asyncio.create_task(self._extend()), asyncio.create_task(self._look())]
        working = asyncio.create_task(self._work(stop, until_empty=until_empty))
        try:
            await asyncio.wait([working, hurried], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            working.cancel()
            await self._finish(hurried)
            for helper in (*helpers, hurried):
                helper.cancel()
        event("executor-stopped")
        return 0

    async def _work(self, stop: asyncio.Event, *, until_empty: bool) -> None:
        stopping = asyncio.create_task(stop.wait())
        pause = self._bounds.poll_min
        try:
            while not stop.is_set():
                found = await self._lease()
                pause = poll(pause, found=found > 0, bounds=self._bounds)
                idle = not found and not self._held and self._clock.now() > self._full_until
                if until_empty and idle and not await self._backlog():
                    break
                if found and self._room():
                    continue
                self._ended.clear()
                ended = asyncio.create_task(self._ended.wait())
                timeout = None if not self._room() else self._until_ready(pause)
                await asyncio.wait([stopping, ended], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
        finally:
            stopping.cancel()

    def _until_ready(self, pause: float) -> float:
        """Return the pause, cut short where the rate of a queue allows a lease before its end."""
        return min([pause, *filter(None, (source.queue.ready_in for source in self._sources))])

    def _room(self) -> int:
        return max(0, self._limit - len(self._held))

    async def _lease(self) -> int:
        """Lease what there is room for, and start it; return how many came."""
        found = 0
        vain = set[int]()  # places of queues that gave nothing: asking again at once costs as much, and finds as little
        self._turn += 1
        weights = [source.weight for source in self._sources]
        for place, share in shares(weights, self._room(), strict=self._strict, turn=self._turn):
            wanted = min(share, self._room(), 1_000)
            if wanted == 0 or place in vain:
                continue
            source = self._sources[place]
            leases: list[Lease] = []
            try:
                leases = await source.queue.lease(wanted, seconds=LEASE_SECONDS)
            except BackendError as error:
                event("lease-failed", level=logging.WARNING, queue=source.queue.name, error=error)
            if not leases:
                vain.add(place)
            for lease in leases:
                held = _Held(source, lease)
                self._held.add(held)
                held.work = asyncio.create_task(self._handle(held))
            found += len(leases)
        if found:
            self._found.set()
        return found

    async def _handle(self, held: _Held) -> None:
        """Run one leased task, and complete it or give it back."""
        queue = held.source.queue
        try:
            delay = 0.0
            try:
                again = await self._runner.run(_delivery(held.lease))
                if again is None:
                    await queue.complete(held.lease)
                    return
                delay = max(0, again.at - self._clock.now()) / SECOND
                if again.full:
                    self._full_until = max(self._full_until, again.at + SECOND)
            except BackendError as problem:
                event("delivery-failed", level=logging.WARNING, queue=queue.name, error=problem)
                delay = _SICK
            except asyncio.CancelledError:
                event("delivery-given-back", queue=queue.name, task=held.lease.name)
            # The runner counts attempts, not the queue: a task with a policy of its own would be dead before its call.
            await queue.release(held.lease, delay=delay, counts=False)
        except LeaseExpired:
            event("lease-lost", level=logging.WARNING, queue=queue.name, task=held.lease.name)
        except BackendError as problem:
            event("settle-failed", level=logging.WARNING, queue=queue.name, error=problem)
        finally:
            self._held.discard(held)
            self._ended.set()

    async def _extend(self) -> None:
        """Keep the leases of what runs, each extended when a third of it has passed."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            for source in self._sources:
                held = [each for each in self._held if each.source is source]
                for start in range(0, len(held), 100):
                    await self._extend_some(source, held[start : start + 100])

    async def _extend_some(self, source: Source, held: list[_Held]) -> None:
        try:
            leases = await source.queue.extend_many([each.lease for each in held], LEASE_SECONDS)
        except BackendError as error:
            event("extend-failed", level=logging.WARNING, queue=source.queue.name, error=error)
            return
        for each, lease in zip(held, leases, strict=True):
            each.lease = lease or each.lease

    async def _look(self) -> None:
        """Set the concurrency by the backlog, and say which queues are behind."""
        pause = LOOK_MIN
        while True:
            self._found.clear()
            await asyncio.sleep(LOOK_MIN)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._found.wait(), pause - LOOK_MIN)
            backlog = await self._backlog()
            pause = look(pause, idle=not (backlog or self._held))
            limit = concurrency(self._limit, backlog=backlog, running=len(self._held), bounds=self._bounds)
            if limit != self._limit:
                event("concurrency-set", limit=limit, backlog=backlog)
                self._limit = limit
                self._pool.resize(limit)
                self._ended.set()
            self._say_what_is_late()

    async def _backlog(self) -> int:
        """Return about how many tasks wait in the queues whose first is due; 1 for a queue that cannot be asked."""
        waiting = 0
        for source in self._sources:
            try:
                stats = self.seen[source.queue.name] = await source.queue.stats()
            except BackendError:
                waiting += 1
                continue
            if stats.oldest_eta is not None and stats.oldest_eta <= self._clock.now():
                waiting += max(0, stats.tasks - stats.in_flight)
        return waiting

    def _say_what_is_late(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._said + SAID:
            return
        for queue, stats in self.seen.items():
            late = 0.0 if stats.oldest_eta is None else (self._clock.now() - stats.oldest_eta) / SECOND
            if late >= LATE and not stats.paused:
                event("queue-behind", level=logging.WARNING, queue=queue, late_s=round(late), tasks=stats.tasks)
                self._said = now

    async def _finish(self, hurried: "asyncio.Task[Any]") -> None:
        """Let what runs end, for GRACE seconds or until `hurried`; then cancel it and have its tasks given back."""
        works = [held.work for held in self._held if held.work is not None]
        now = asyncio.get_running_loop().time
        until = now() + GRACE
        while (left := [work for work in works if not work.done()]) and not hurried.done() and now() < until:
            await asyncio.wait([*left, hurried], timeout=until - now(), return_when=asyncio.FIRST_COMPLETED)
        for work in left:
            work.cancel()
        if left:
            await asyncio.wait(left, timeout=GRACE / 2)


def _delivery(lease: Lease) -> Delivery:
    task = lease.task
    return Delivery(
        queue=lease.queue,
        id=lease.name,
        payload=task.payload,
        due=from_datetime(task.eta) if task.eta is not None else 0,
        tag=task.tag,
        headers=task.headers,
    )
