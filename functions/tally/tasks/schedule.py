"""The schedule of one push queue: which task is dispatched when, what its answer means, which names are taken.

Pure: no I/O, no clock, no task of the event loop. The owner gives `now` (µs since 1970), performs what comes back, and
keeps one timer:

    for dispatch in schedule.due(now):      send each; its answer goes to finish(dispatch, outcome, now)
    for dispatch in schedule.overdue(now):  stop waiting for the answer, then finish(dispatch, DEADLINE_EXCEEDED, now)
    sleep until schedule.wake_at(now)       None: until a task is added, an answer comes or a setting changes

A task leaves when it succeeds, is given up, deleted, purged or older than the retention; until then it is tried again.
To survive a restart the owner stores each `Entry` that a method returns and gives it back to `restore`; what was in
flight is then dispatched again. Every method is O(log n) or better, but `purge` and, seldom, the removal of aged tasks.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType

from tally.clock import SECOND
from tally.errors import Conflict, NotFound
from tally.limits import TASK_NAMES_KEPT
from tally.retry import RetryPolicy
from tally.tasks.agenda import Agenda
from tally.tasks.entry import DAY, HOUR, MINUTE, Attempt, Dispatch, Ending, Entry, Outcome, Settlement, Stats
from tally.tasks.rate import Meter, Rate, RateLimits


class Schedule:
    """One queue. `tombstone` (µs) is how long a used name stays taken, `retention` (µs) how long a task may live.

    `random` applies the jitter of the policies; without it there is none.
    """

    def __init__(
        self,
        limits: RateLimits,
        retry: RetryPolicy,
        *,
        now: int,
        tombstone: int = HOUR,
        retention: int = 31 * DAY,
        random: Random | None = None,
    ) -> None:
        self.limits = limits
        self.retry = retry
        self.paused = False
        self._tombstone = tombstone
        self._retention = retention
        self._random = random
        self._rate = Rate(limits, now=now)
        self._executed = Meter()
        self._tasks: dict[str, Entry] = {}
        self._waiting: Agenda[str] = Agenda(self._waits, lambda: len(self._tasks))
        self._open: dict[tuple[int, int], Dispatch] = {}
        self._expiries: Agenda[int] = Agenda(self._is_open, lambda: len(self._open))
        self._taken: OrderedDict[str, int] = OrderedDict()
        self._sequence = 0
        self._next_aged: int | None = None

    # Tasks

    def add(
        self,
        task_id: str,
        payload: bytes,
        *,
        now: int,
        eta: int | None = None,
        deadline: int = 10 * MINUTE,
        retry: RetryPolicy | None = None,
        named: bool = True,
    ) -> Entry:
        """Add a task; an `eta` in the past means now. Raises Conflict, code `task-exists` or `task-name-used`."""
        self._release_names(now)
        self._drop_aged(now)
        if task_id in self._tasks:
            raise Conflict(f"task {task_id!r} is in the queue already", code="task-exists")
        if task_id in self._taken:
            raise Conflict(f"task name {task_id!r} was used lately and is not free yet", code="task-name-used")
        self._sequence += 1
        entry = Entry(
            id=task_id,
            sequence=self._sequence,
            created=now,
            eta=now if eta is None else max(eta, now),
            payload=payload,
            deadline=deadline,
            retry=retry,
            named=named,
        )
        self._hold(entry)
        return entry

    def restore(self, entry: Entry) -> None:
        """Put back a stored task, as waiting at its `eta`; attempts that were in flight still count."""
        self._sequence = max(self._sequence, entry.sequence)
        self._hold(replace(entry, running=0))

    def restore_name(self, task_id: str, until: int) -> None:
        """Put back a name that stays taken until then; call in the order of `taken`."""
        self._taken[task_id] = until

    def get(self, task_id: str, now: int) -> Entry:
        """Return a task of the queue, in flight or not. Raises NotFound."""
        self._drop_aged(now)
        try:
            return self._tasks[task_id]
        except KeyError:
            raise NotFound(f"no task {task_id!r} in the queue") from None

    def tasks(self, now: int) -> Iterator[Entry]:
        """Every task, oldest first; do not change the schedule meanwhile."""
        self._drop_aged(now)
        return iter(self._tasks.values())

    def delete(self, task_id: str, now: int) -> Entry:
        """Remove a task, also one in flight (its answer then changes nothing). Raises NotFound."""
        entry = self.get(task_id, now)
        self._remove(entry, now)
        return entry

    def purge(self, now: int) -> int:
        """Remove every task; return how many there were."""
        count = len(self._tasks)
        for entry in list(self._tasks.values()):
            self._remove(entry, now)
        self._next_aged = None
        return count

    @property
    def taken(self) -> Mapping[str, int]:
        """Names of tasks that are gone and not free yet, each with the instant of its release, soonest first."""
        return MappingProxyType(self._taken)

    # Settings

    def configure(self, limits: RateLimits, retry: RetryPolicy, now: int) -> None:
        """Take new limits and a new policy; tasks that wait for a retry keep the instant they have."""
        self.limits = limits
        self.retry = retry
        self._rate.configure(limits, now)

    def pause(self) -> None:
        """Dispatch nothing until `resume`; answers still count."""
        self.paused = True

    def resume(self, now: int) -> None:
        if self.paused:
            self.paused = False
            self._rate.restart_ramp(now)

    # Dispatching

    def due(self, now: int) -> list[Dispatch]:
        """Take the tasks to dispatch now, by eta then age, as far as rate, burst and concurrency allow."""
        self._drop_aged(now)
        batch: list[Dispatch] = []
        while not self.paused and len(self._open) < self.limits.concurrent:
            head = self._waiting.head()
            if head is None or head[0] > now:
                break
            ready_at = self._rate.ready_at(now)
            if ready_at is None or ready_at > now:
                break
            self._rate.take(now)
            self._waiting.pop()
            batch.append(self._dispatch(self._tasks[head[2]], now, forced=False))
        return batch

    def force(self, task_id: str, now: int) -> Dispatch:
        """Dispatch a task now, whatever pause, rate and concurrency say, also while it runs. Raises NotFound."""
        return self._dispatch(replace(self.get(task_id, now), eta=now), now, forced=True)

    def overdue(self, now: int) -> list[Dispatch]:
        """Return the attempts whose deadline has passed and which nobody has finished yet."""
        late: list[Dispatch] = []
        while (item := self._expiries.head()) is not None and item[0] <= now:
            self._expiries.pop()
            late.append(self._open[item[1:]])
        return late

    def finish(self, dispatch: Dispatch, outcome: Outcome, now: int) -> Settlement:
        """Settle an attempt: remove the task, or set its next attempt. A second answer to one attempt is stale."""
        opened = self._open.pop((dispatch.entry.sequence, dispatch.attempt), None)
        if opened is None:
            return Settlement(ending=Ending.STALE, entry=None)
        self._rate.record(success=outcome.success, overload=outcome.overload, now=now)
        entry = self._tasks.get(dispatch.entry.id)
        if entry is None or entry.sequence != dispatch.entry.sequence:
            return Settlement(ending=Ending.STALE, entry=None)
        entry = replace(
            entry,
            running=entry.running - 1,
            responses=entry.responses + outcome.answered,
            last=Attempt(
                scheduled=dispatch.entry.eta,
                dispatched=dispatch.expires - dispatch.entry.deadline,
                responded=now,
                status=outcome.status,
            ),
        )
        ending = self._settle(entry, dispatch, outcome, now)
        return Settlement(ending=ending, entry=self._tasks.get(entry.id, entry))

    def wake_at(self, now: int) -> int | None:
        """Return when `due` or `overdue` may have work (up to `now`: at once), or None if time alone brings none."""
        instants = [] if self._next_aged is None else [self._next_aged]
        expiry, head = self._expiries.head(), self._waiting.head()
        if expiry is not None:
            instants.append(expiry[0])
        if head is not None and not self.paused and len(self._open) < self.limits.concurrent:
            ready_at = self._rate.ready_at(now)
            if ready_at is not None:
                instants.append(max(head[0], ready_at))
        return min(instants, default=None)

    def stats(self, now: int) -> Stats:
        self._drop_aged(now)
        head = self._waiting.head()
        return Stats(
            tasks=len(self._tasks),
            in_flight=len(self._open),
            oldest_eta=None if head is None else head[0],
            executed_last_minute=self._executed.total(now),
            enforced_rate=0.0 if self.paused else self._rate.enforced(now),
        )

    def _settle(self, entry: Entry, dispatch: Dispatch, outcome: Outcome, now: int) -> Ending:
        if outcome.success:
            self._executed.add(now)
            self._remove(entry, now)
            return Ending.SUCCEEDED
        if entry.running:
            self._tasks[entry.id] = entry
            return Ending.RUNNING
        policy = entry.retry or self.retry
        first = entry.first_dispatch if entry.first_dispatch is not None else now
        if policy.exhausted(entry.dispatches, (now - first) / SECOND):
            self._remove(entry, now)
            return Ending.EXHAUSTED
        base = dispatch.entry.eta if dispatch.forced else now
        delay = round(policy.delay(entry.dispatches, self._random) * SECOND)
        self._hold(replace(entry, eta=max(base + delay, now + outcome.retry_after)))
        return Ending.RETRY

    def _dispatch(self, entry: Entry, now: int, *, forced: bool) -> Dispatch:
        previous = entry.last
        entry = replace(
            entry,
            dispatches=entry.dispatches + 1,
            running=entry.running + 1,
            first_dispatch=now if entry.first_dispatch is None else entry.first_dispatch,
            last=Attempt(scheduled=entry.eta, dispatched=now),
        )
        dispatch = Dispatch(
            entry=entry, attempt=entry.dispatches, expires=now + entry.deadline, previous=previous, forced=forced
        )
        self._tasks[entry.id] = entry
        self._open[(entry.sequence, dispatch.attempt)] = dispatch
        self._expiries.push(dispatch.expires, entry.sequence, dispatch.attempt)
        return dispatch

    def _hold(self, entry: Entry) -> None:
        self._tasks[entry.id] = entry
        self._waiting.push(entry.eta, entry.sequence, entry.id)
        aged = entry.created + self._retention
        self._next_aged = aged if self._next_aged is None else min(self._next_aged, aged)

    def _waits(self, eta: int, sequence: int, task_id: str) -> bool:
        entry = self._tasks.get(task_id)
        return entry is not None and not entry.running and entry.sequence == sequence and entry.eta == eta

    def _is_open(self, _: int, sequence: int, attempt: int) -> bool:
        return (sequence, attempt) in self._open

    def _remove(self, entry: Entry, now: int) -> None:
        del self._tasks[entry.id]
        if entry.named:
            self._taken[entry.id] = now + self._tombstone
            self._taken.move_to_end(entry.id)
            if len(self._taken) > TASK_NAMES_KEPT:
                self._taken.popitem(last=False)

    def _release_names(self, now: int) -> None:
        while self._taken and next(iter(self._taken.values())) <= now:
            self._taken.popitem(last=False)

    def _drop_aged(self, now: int) -> None:
        if self._next_aged is None or now < self._next_aged:
            return
        for entry in [entry for entry in self._tasks.values() if entry.created + self._retention <= now]:
            self._remove(entry, now)
        oldest = min((entry.created for entry in self._tasks.values()), default=None)
        self._next_aged = None if oldest is None else max(oldest + self._retention, now + SECOND)
