"""Leasing: take the tasks that are due, by compare-and-swap; what another took first is left to it.

Within a shard the order is by (eta, name); tour.py says in which order the shards are visited, glance.py which need not
be. No lease reads more than twice the rows that it was asked for (and one a shard for the oldest tag, or for a glance).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from tally import limits
from tally.clock import CLOCK_BOUND, SECOND
from tally.errors import InvalidInput, Refused, Unavailable
from tally.logs import event
from tally.ports import Filter
from tally.retry import RetryPolicy, full_jitter
from tally.tasks import envelope, keys
from tally.tasks.glance import Glance
from tally.tasks.lease import Lease
from tally.tasks.row import Row, change, dead, leased
from tally.tasks.rows import TRIES, Rows, by_size
from tally.tasks.task import check_tag, seconds
from tally.tasks.throttle import Throttle
from tally.tasks.tour import Tour

T = TypeVar("T")
_ROUNDS = 10
_GROWTH = 2  # a visit is of at most so many times the shards of the one before
_SECONDS_MIN = 0.1


class _Tag(Enum):
    OLDEST = "oldest"


# The tag of the task that is due first; if that has none, tasks without a tag.
OLDEST: Final = _Tag.OLDEST
Tag: TypeAlias = str | None | Literal[_Tag.OLDEST]
_Range: TypeAlias = Callable[[int, int], tuple[Filter, ...]]  # of a shard, for what is due at an instant


@dataclass(slots=True)
class _Harvest:
    """What one round reads and takes. `met` another lessee, or `buried` tasks: then a new round may find more."""

    need: int
    budget: int
    token: str
    now: int
    until: int
    room: int = int(limits.LEASE_BYTES)
    taken: list[tuple[Row, Row]] = field(default_factory=list)  # as it was, as it is
    met: bool = False
    buried: int = 0

    @property
    def wanted(self) -> int:
        return min(self.need - len(self.taken), self.budget) if self.room > 0 else 0

    def share(self, shards: int) -> int:
        """Return how many rows to read of each of some shards; of several twice the part, as they differ."""
        part = ceil(self.wanted / shards)
        return max(1, min(part if shards == 1 else 2 * part, self.budget // shards))

    def choose(self, found: Sequence[Row]) -> list[Row]:
        """Return the first of the rows, by (eta, name), as many and as large as there is room for; one in any case."""
        chosen: list[Row] = []
        for row in sorted(found, key=_order):
            if len(self.taken) + len(chosen) == self.need:
                break
            if row.size > self.room and (self.taken or chosen):
                self.room = 0
                break
            self.room -= row.size
            chosen.append(row)
        return chosen


class Leasing:
    """`retry` is the policy of tasks that bring none."""

    def __init__(self, rows: Rows, retry: RetryPolicy) -> None:
        self._rows = rows
        self._retry = retry
        self._throttle = Throttle(rows)
        self._tour = Tour(rows.random)
        self._glance = Glance(rows)

    @property
    def ready_in(self) -> float:
        return self._throttle.ready_in

    async def lease(self, max_tasks: int, lease_seconds: float, tag: Tag, wait: float) -> list[Lease]:
        """Lease tasks, waiting up to `wait` seconds for the first; see `PullQueue.lease`."""
        _check(max_tasks, lease_seconds, tag, wait)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait
        tries = 0
        while True:
            leases = await self._lease_at_rate(max_tasks, lease_seconds, tag)
            left = give_up_at - loop.time()
            if leases or left <= 0:
                return leases
            tries += 1
            pause = full_jitter(tries, base=0.1, cap=1.0, random=self._rows.random)
            await asyncio.sleep(min(left, max(pause, 0.02, self.ready_in)))

    async def _lease_at_rate(self, max_tasks: int, lease_seconds: float, tag: Tag) -> list[Lease]:
        record = await self._rows.record()
        self._check_clock()
        if record.paused:
            return []
        if record.rate is None:
            return await self._lease(max_tasks, lease_seconds, tag)

        async def lease(count: int) -> list[Lease]:
            return await self._lease(count, lease_seconds, tag)

        async def is_due() -> bool:
            shards = await self._open(tag, record.shards)
            wanted = await self._range(tag, shards)
            return wanted is not None and bool(await self._heads(shards, wanted))

        return await self._throttle.lease(record.rate, max_tasks, lease, is_due)

    def _check_clock(self) -> None:
        """Raise Unavailable on a clock by which others' leases, and claims of their runs, would seem to be over."""
        skew = self._rows.skew
        if skew > CLOCK_BOUND:
            most = CLOCK_BOUND // SECOND
            raise Unavailable(
                f"this clock is {skew / SECOND:.0f} s from the store's: over {most} s nothing is leased", status="CLOCK"
            )

    async def _lease(self, max_tasks: int, lease_seconds: float, tag: Tag) -> list[Lease]:
        for _ in range(_ROUNDS):
            record = await self._rows.record()
            shards = set[int]() if record.paused else await self._open(tag, record.shards)
            wanted = await self._range(tag, shards)
            if wanted is None:
                self._glance.idle = True
                return []
            now = self._rows.clock.now()
            harvest = _Harvest(
                need=max_tasks,
                budget=2 * max_tasks,
                token=self._rows.new_id(),
                now=now,
                until=now + round(lease_seconds * SECOND),
            )
            await self._gather(harvest, shards, record.shards, wanted)
            if harvest.taken or not (harvest.met or harvest.buried):
                self._glance.idle = not harvest.taken
                return await self._opened(harvest)
        return []

    async def _open(self, tag: Tag, shards: int) -> set[int]:
        """Return the shards that may hold what is wanted. With a tag each is asked: others' tasks may be due in all."""
        return set(range(shards)) if isinstance(tag, str) else await self._glance.at(shards)

    async def _range(self, tag: Tag, shards: set[int]) -> _Range | None:
        """Return which rows are wanted; None: there are none."""
        queue = self._rows.queue
        if tag is None:
            return lambda shard, now: keys.due_range(queue, shard, now)
        if isinstance(tag, str):
            return lambda shard, now: keys.tagged_range(queue, shard, tag, now)
        heads = await self._heads(shards, lambda shard, now: keys.due_range(queue, shard, now))
        if not heads:
            return None
        oldest = min(heads, key=_order).tag
        return lambda shard, now: keys.tagged_range(queue, shard, oldest, now)

    async def _heads(self, shards: set[int], wanted: _Range) -> list[Row]:
        """Return the first row of each shard that has one."""
        now = self._rows.clock.now()
        heads = await asyncio.gather(*(self._rows.scan(wanted(shard, now), 1) for shard in shards))
        return [row for head in heads for row in head]

    async def _gather(self, harvest: _Harvest, left: set[int], shards: int, wanted: _Range) -> None:
        """Visit one shard of those that are left of so many, then about as many at once as hold the rest.

        In company it is content with what the first visit brings, and does not look everywhere at once. An outage ends
        the round, with what was taken before it; it is raised if that is nothing.
        """
        now = asyncio.get_running_loop().time
        at_once = 1
        while left and harvest.wanted and (self._tour.alone(now()) or not harvest.taken):
            wave = self._tour.order(left, shards, now())[:at_once]
            wanted_before, budget_before = harvest.wanted, harvest.budget
            try:
                left = left - await self._visit(harvest, wave, wanted)
            except Unavailable:
                if not harvest.taken:
                    raise
                return
            rows = budget_before - harvest.budget
            more = _GROWTH * len(wave)
            if rows:
                at_once = min(ceil(wanted_before * len(wave) / rows), more) if self._tour.alone(now()) else 1
            else:
                at_once = len(left) if self._tour.alone(now()) else more
            at_once = max(1, min(at_once, harvest.budget))

    async def _visit(self, harvest: _Harvest, wave: Sequence[int], wanted: _Range) -> set[int]:
        """Take what there is room for in some shards at once; return those that hold no more of it."""
        now = asyncio.get_running_loop().time
        limit = harvest.share(len(wave))
        found = await _all(self._rows.scan(wanted(shard, harvest.now), limit) for shard in wave)
        harvest.budget -= sum(map(len, found))
        chosen = {shard: list[Row]() for shard in wave}
        for row in harvest.choose([row for part in found for row in part]):
            chosen[row.shard].append(row)
        met = dict(zip(wave, await _all(self._take(harvest, chosen[shard]) for shard in wave), strict=True))
        drained = {shard for shard, part in zip(wave, found, strict=True) if len(chosen[shard]) == len(part) < limit}
        for shard in wave:
            self._tour.visited(shard, now(), drained=shard in drained)
        for shard in wave:
            if met[shard]:
                self._tour.met(shard, now())
        return drained

    async def _take(self, harvest: _Harvest, chosen: Sequence[Row]) -> bool:
        """Lease rows of one shard, or bury those that may not run again; tell whether another was ahead."""
        met = [await self._take_part(harvest, part) for part in by_size(chosen, lambda row: row.weight)]
        harvest.met |= any(met)
        return any(met)

    async def _take_part(self, harvest: _Harvest, chosen: Sequence[Row]) -> bool:
        """Do so in one commit: all of it, or nothing, when another was ahead."""
        changes = [(row, self._next_state(row, harvest)) for row in chosen]
        versions = await self._commit(changes, harvest.token)
        if versions is None:
            return True
        for (old, new), version in zip(changes, versions, strict=True):
            if new.state == "ready":
                harvest.taken.append((old, replace(new, version=version)))
            else:
                harvest.buried += 1
                event("task-dead", queue=new.queue, task=new.name, attempts=new.attempts)
        return False

    def _next_state(self, row: Row, harvest: _Harvest) -> Row:
        now = harvest.now
        if row.ends <= now:
            return dead(row, now=now, error="expired before it ran", by=harvest.token)
        if row.attempts:
            policy = envelope.decode(row.task).retry or self._retry
            if policy.exhausted(row.attempts, (now - row.first_attempt_at) / SECOND):
                last = row.error or "its lease ended and nothing was heard"
                return dead(row, now=now, error=f"given up after {row.attempts} attempts: {last}", by=harvest.token)
        return leased(row, token=harvest.token, now=now, until=harvest.until)

    async def _commit(self, changes: Sequence[tuple[Row, Row]], token: str) -> Sequence[int] | None:
        """Commit and return the new versions; None: another was first.

        After an unknown outcome the same commit is tried again: it succeeds, or is refused and the token tells by whom.
        """
        writes = change(changes)
        for attempt in range(1, TRIES + 1):
            try:
                return (await self._rows.commit(writes)).versions
            except Refused:
                return await self._versions([old for old, _ in changes], token)
            except Unavailable:
                if attempt == TRIES:
                    raise
                await self._rows.pause(attempt)
        return None

    async def _versions(self, rows: Sequence[Row], token: str) -> list[int] | None:
        """Return the versions of what a refused commit wrote all the same; None: it did not. One row tells of all."""
        first = (await self._rows.find([rows[0].key])).get(rows[0].key)
        if first is None or token not in (first.token, first.settled_by):
            return None
        found = await self._rows.find(row.key for row in rows)
        return [found[row.key].version if row.key in found else 0 for row in rows]

    async def _opened(self, harvest: _Harvest) -> list[Lease]:
        """Return the leases with their payloads, in the order in which the tasks were due."""
        taken = sorted(harvest.taken, key=lambda pair: _order(pair[0]))
        rows = [row for _, row in taken]
        payloads = await self._rows.persist(lambda: self._rows.payloads([row for row in rows if row.beside]))
        return [
            Lease(task=row.decoded(payloads.get(row.key, b"")), token=harvest.token, expires_at=harvest.until, row=row)
            for row in rows
        ]


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run to the end of all, then raise the first error, if there was one."""
    answers = await asyncio.gather(*work, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast(list[T], answers)


def _order(row: Row) -> tuple[int, str]:
    return row.eta, row.name


def _check(max_tasks: int, lease_seconds: float, tag: Tag, wait: float) -> None:
    if isinstance(max_tasks, bool) or not isinstance(max_tasks, int) or not 1 <= max_tasks <= limits.LEASE_TASKS:
        raise InvalidInput(f"max_tasks is {max_tasks!r}: want 1 to {limits.LEASE_TASKS}")
    seconds("lease seconds", lease_seconds, at_least=_SECONDS_MIN, at_most=limits.LEASE_SECONDS)
    seconds("wait", wait, at_most=limits.LEASE_WAIT_SECONDS)
    if isinstance(tag, str):
        check_tag(tag)
