"""PullQueue: tasks that workers lease, on nothing but the Store port.

    queue = PullQueue(store, "mail", clock=SystemClock())
    await queue.add(Task.json({"to": 7}, tag="mail"))
    for lease in await queue.lease(100, seconds=60, wait=10):
        ...
        await queue.complete(lease)

A task runs at least once: a worker may die after the work and before `complete`. It is completed by one lease only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random, SystemRandom
from typing import Literal

from tally import limits
from tally.clock import SECOND, Clock, from_datetime
from tally.errors import InvalidInput, LeaseExpired, TooLarge, Unavailable
from tally.logs import event
from tally.ports import Store, Write
from tally.retry import RetryPolicy
from tally.tasks import enqueue, inspection, keys, together, upkeep
from tally.tasks.enqueue import Prepared
from tally.tasks.inspection import Listed, TaskInfo, Waiting
from tally.tasks.lease import Lease
from tally.tasks.leasing import Leasing, Tag
from tally.tasks.outcome import Outcome
from tally.tasks.row import Row, dead, done, due_now, extended, released, replayed
from tally.tasks.rows import Rows
from tally.tasks.settling import Settled, settle
from tally.tasks.start_rate import StartRate
from tally.tasks.stats import QueueStats
from tally.tasks.task import Duration, Task, check_name, check_queue, seconds


class PullQueue:
    """One queue, made when first used. Errors of the store pass through.

    `shards` (1 to 64, kept for ever) is 16 unless given: one shard has exact ETA order, more take more writes a second.
    `retry` is for tasks that bring no policy. `random` also makes names and tokens: it must not be guessable.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        clock: Clock,
        random: Random | None = None,
        retry: RetryPolicy | None = None,
        shards: int | None = None,
    ) -> None:
        if shards is not None and not 1 <= shards <= limits.QUEUE_SHARDS:
            raise InvalidInput(f"shards is {shards}: want 1 to {limits.QUEUE_SHARDS}")
        self.name = check_queue(name)
        self._retry = retry or RetryPolicy()
        self._rows = Rows(store, queue=name, clock=clock, random=random or SystemRandom(), shards=shards)
        self._leasing = Leasing(self._rows, self._retry)

    async def add(self, task: Task) -> Outcome:
        """Add one task: `added`, or `exists` or `tombstoned` by its name (then it is in already: no error).

        Raises TooLarge over 900 kB, Unavailable when the store does not say (it may be in).
        """
        (outcome,) = await self.add_many([task])
        if outcome.status == "invalid":
            raise TooLarge(outcome.error or "")
        if outcome.status == "unknown":
            raise Unavailable(f"the store did not say whether task {outcome.name} was added to {self.name}")
        return outcome

    async def add_many(self, tasks: Iterable[Task]) -> list[Outcome]:
        """Add any number of tasks; return one outcome a task, in order. Each task is added or not by itself."""
        return await enqueue.add_many(self._rows, list(tasks))

    async def prepare(self, tasks: Iterable[Task]) -> Prepared:
        """Return the tasks as writes for a commit of your own: they exist if and only if it is applied.

        A task name that is in use refuses that commit. The caller keeps it within COMMIT_MUTATIONS and COMMIT_BYTES.
        """
        return await enqueue.prepare(self._rows, list(tasks))

    async def lease(self, max_tasks: int = 1, *, seconds: float = 60, tag: Tag = None, wait: float = 0) -> list[Lease]:
        """Lease up to `max_tasks` (≤ 1,000) that are due, for `seconds` (≤ 604,800), in the order of their ETAs.

        `tag`: None takes any task, a string those with it, OLDEST those with the tag of the task that is due first.
        `wait`: how many seconds to wait for the first one. Fewer come when they are large (20 MB), or when others lease
        too: then a lease is content with what one shard has. A paused queue gives none. A task past its retry or age
        limit or its expiry becomes a dead letter here.
        """
        return await self._leasing.lease(max_tasks, seconds, tag, wait)

    async def held(self, name: str, token: str) -> Lease:
        """Return the lease that a token holds, for callers that keep only name and token. Raises LeaseExpired."""
        (lease,) = await self.held_many([(name, token)])
        if lease is None:
            raise LeaseExpired(f"task {name}: no lease of that token")
        return lease

    async def held_many(self, pairs: Sequence[tuple[str, str]]) -> list[Lease | None]:
        """Return the leases of (name, token), in order, None for one that is over; large payloads are left out."""
        shards = (await self._rows.record()).shards
        places = [keys.task(self.name, check_name(name), shards).key for name, _ in pairs]
        found = await self._rows.find(dict.fromkeys(places))
        leases: list[Lease | None] = []
        for key, (_, token) in zip(places, pairs, strict=True):
            row = found.get(key)
            held = row is not None and row.state == "ready" and row.token == token != ""
            leases.append(Lease(task=row.decoded(), token=token, expires_at=row.eta, row=row) if row and held else None)
        return leases

    async def extend(self, lease: Lease, seconds: float) -> Lease:
        """Hold a task for `seconds` from now; return the new lease. Raises LeaseExpired."""
        (extended,) = await self.extend_many([lease], seconds)
        if extended is None:
            raise LeaseExpired(f"task {lease.name}: this lease no longer holds it")
        return extended

    async def extend_many(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease | None]:
        """Extend leases; return the new ones in order, None for one that is lost. Raises Unavailable."""
        seconds("lease seconds", lease_seconds, at_least=0.1, at_most=limits.LEASE_SECONDS)
        until = self._rows.clock.now() + round(lease_seconds * SECOND)
        settled = await settle(self._rows, leases, lambda row: extended(row, until=until))
        for lease, (status, _) in zip(leases, settled, strict=True):
            _known(lease, status)
        return [
            replace(lease, row=row, expires_at=until) if status == "done" else None
            for lease, (status, row) in zip(leases, settled, strict=True)
        ]

    async def complete(self, lease: Lease) -> None:
        """Finish a task: it is gone, its name stays taken for a while. Raises LeaseExpired, Unavailable."""
        (status,) = await self.complete_many([lease])
        _held(lease, status)

    async def complete_many(self, leases: Sequence[Lease]) -> list[Settled]:
        """Finish tasks; return what became of each, in order: `done`, `lost` (another's now) or `unknown`."""
        now = self._rows.clock.now()
        settled = await settle(self._rows, leases, lambda row: done(row, now=now, by=row.token))
        return [status for status, _ in settled]

    async def complete_with(self, leases: Sequence[Lease], writes: Sequence[Write]) -> None:
        """Finish tasks (at most half of COMMIT_MUTATIONS) and apply writes of your own, in one commit or not at all.

        Raises LeaseExpired when one of the tasks is another's by now, Unavailable when the store does not say.
        """
        settled = await together.complete_with(self._rows, leases, writes)
        for lease in leases:
            _held(lease, settled)

    async def release(
        self, lease: Lease, *, delay: Duration | None = None, error: str | None = None, counts: bool = True
    ) -> Literal["released", "dead"]:
        """Give a task back. With `error` the attempt failed: it waits as its policy says, or is a dead letter by it.

        `delay` overrides the wait. With `counts=False` this lease is no attempt. Raises LeaseExpired, Unavailable.
        """
        now = self._rows.clock.now()
        policy = lease.task.retry or self._retry
        if (
            error is not None
            and counts
            and policy.exhausted(lease.attempt, (now - lease.row.first_attempt_at) / SECOND)
        ):
            await self.reject(lease, f"given up after {lease.attempt} attempts: {error}")
            return "dead"
        if delay is None:
            delay = 0 if error is None else policy.delay(lease.attempt, self._rows.random)
        due = now + round(seconds("delay", delay) * SECOND)
        ((status, _),) = await settle(
            self._rows, [lease], lambda row: released(row, due=due, error=error, counts=counts)
        )
        _held(lease, status)
        return "released"

    async def put_back(self, leases: Sequence[Lease]) -> None:
        """Give tasks back as if they had not been leased: no attempts, each in its old place in the order.

        One whose lease is over is left to its holder; one of which the store says nothing comes when its lease ends.
        """
        dues = {lease.row.key: _due(lease) for lease in leases}
        await settle(self._rows, leases, lambda row: released(row, due=dues[row.key], error=None, counts=False))

    async def reject(self, lease: Lease, error: str) -> None:
        """Make a task a dead letter at once. Raises LeaseExpired, Unavailable."""
        now = self._rows.clock.now()
        ((status, _),) = await settle(self._rows, [lease], lambda row: dead(row, now=now, error=error, by=row.token))
        _held(lease, status)
        event("task-dead", queue=self.name, task=lease.name, attempts=lease.attempt)

    async def delete(self, name: str) -> bool:
        """Delete a task by its name, dead letters too, whoever holds it; say whether there was one.

        A holder then finds its lease lost. To finish a task, use `complete`.
        """
        return await upkeep.alter(self._rows, check_name(name), lambda row, now: done(row, now=now))

    async def run_now(self, name: str) -> bool:
        """Make a task that waits for its ETA or its next attempt due now; say whether there was one that waits."""
        return await upkeep.alter(self._rows, check_name(name), due_now)

    async def purge(self) -> int:
        """Delete the tasks that were added before now, leased ones too; return how many. Dead letters stay."""
        return await upkeep.purge(self._rows)

    async def pause(self) -> None:
        """Lease no more, in any process, from a second from now on. What is held may be finished and extended."""
        await self._rows.set_record(lambda record: replace(record, paused=True))

    async def resume(self) -> None:
        """Lease again."""
        await self._rows.set_record(lambda record: replace(record, paused=False))

    async def set_rate(self, rate: StartRate | None) -> None:
        """Lease no more tasks than this, in all processes together, from a second from now on; None: as many as ask."""
        await self._rows.set_record(lambda record: replace(record, rate=rate))

    @property
    def ready_in(self) -> float:
        """Return the seconds for which the queue's rate is known to allow no lease, 0 when it may."""
        return self._leasing.ready_in

    async def replay(self, name: str) -> bool:
        """Make a dead letter a task that is due now, with all its attempts; say whether there was one."""
        return await upkeep.alter(
            self._rows, check_name(name), lambda row, now: replayed(row, now=now) if row.state == "dead" else None
        )

    async def drop(self, name: str) -> bool:
        """Delete a dead letter; say whether there was one."""
        return await upkeep.alter(
            self._rows, check_name(name), lambda row, now: done(row, now=now) if row.state == "dead" else None
        )

    async def sweep(self) -> int:
        """Remove tombstones that have served their time, where the store does not do so itself; return how many."""
        return await upkeep.sweep(self._rows)

    async def known(self) -> bool:
        """Say whether it was ever added to, paused or given a rate: a queue is there from then on."""
        return (await self._rows.record(fresh=True)).version > 0

    async def stats(self) -> QueueStats:
        """Count the queue. Each count reads the index, up to COUNTED_ROWS a shard."""
        return await inspection.stats(self._rows)

    async def peek(self, name: str) -> TaskInfo | None:
        """Return a task or dead letter with its payload, without leasing it."""
        row = await self._row(name)
        return None if row is None or row.state == "done" else await inspection.info(self._rows, row)

    async def list(self, state: Listed = "all", *, limit: int = 100) -> Sequence[TaskInfo]:
        """Return the first tasks by ETA, without payloads: `all` that wait or are leased, the `leased`, the `dead`."""
        return await inspection.listing(self._rows, state, limit)

    async def tags(self) -> Sequence[str]:
        """Return the tags of the tasks that wait or are leased, each once, read with one query a tag and shard."""
        return await inspection.tags(self._rows)

    async def waiting(self, tag: str, limit: int) -> Waiting | None:
        """Count the tasks of a tag, up to a limit, leased ones too; None: there are none."""
        return await inspection.waiting(self._rows, tag, limit)

    async def _row(self, name: str) -> Row | None:
        place = keys.task(self.name, check_name(name), (await self._rows.record()).shards)
        return (await self._rows.find([place.key])).get(place.key)


def _due(lease: Lease) -> int:
    return lease.row.added_at if lease.task.eta is None else from_datetime(lease.task.eta)


def _held(lease: Lease, status: Settled) -> None:
    _known(lease, status)
    if status == "lost":
        raise LeaseExpired(f"task {lease.name}: this lease no longer holds it")


def _known(lease: Lease, status: Settled) -> None:
    if status == "unknown":
        raise Unavailable(f"the store did not say what became of task {lease.name}; try again while the lease lasts")
