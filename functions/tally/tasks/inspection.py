"""Looking at a pull queue: numbers, listings, one task. Nothing here changes anything."""

import asyncio
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput
from tally.ports import Filter
from tally.tasks import keys
from tally.tasks.row import Row
from tally.tasks.rows import Rows
from tally.tasks.stats import QueueStats
from tally.tasks.task import Task

Listed: TypeAlias = Literal["all", "leased", "dead"]
_MINUTE = 60 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task as it is in the queue; instants in µs. `eta` of a leased one is when the lease ends, of a dead one when it
    died. `task` is without its payload in listings.
    """

    name: str
    state: Literal["waiting", "delayed", "leased", "dead"]
    task: Task
    eta: int
    added_at: int
    attempts: int
    size: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How many tasks of a tag there are, and when (µs) the first and the last by ETA were added."""

    count: int
    oldest: int
    newest: int


async def tags(rows: Rows) -> list[str]:
    """Return each tag once, going from tag to tag in the index rather than from task to task."""
    found: dict[str, None] = {}
    for shard in range((await rows.record()).shards):
        after: str | None = None
        while heads := await rows.scan(keys.tags_range(rows.queue, shard, after), 1):
            after = heads[0].tag or ""
            found[after] = None
    return list(found)


async def waiting(rows: Rows, tag: str, limit: int) -> Waiting | None:
    count, heads, tails = 0, [], []
    for shard in range((await rows.record()).shards):
        wanted = keys.tagged_range(rows.queue, shard, tag, None)
        if head := await rows.scan(wanted, 1):
            heads += head
            tails += await rows.scan(wanted, 1, order=f"-{keys.TAGGED}")
            count += await rows.count(wanted, limit)
    if not heads:
        return None
    return Waiting(
        count=min(count, limit),
        oldest=min(row.added_at for row in heads),
        newest=max(row.added_at for row in tails or heads),
    )


class _Count(NamedTuple):
    """`full`: counting stopped at the limit of a shard."""

    rows: int
    full: bool = False


class _Tasks(NamedTuple):
    """The tasks that wait or run, those that run, and the first ETA (µs) of all."""

    all: _Count
    leased: _Count
    oldest: int | None


async def stats(rows: Rows) -> QueueStats:
    """Count the queue's rows by its indexes, and find its first task."""
    record = await rows.record(fresh=True)
    queue, now, shards = rows.queue, rows.clock.now(), range(record.shards)
    tasks, executed, dead = await asyncio.gather(
        _tasks(rows, record.shards, now),
        _total(rows, [keys.phase_range(queue, shard, keys.DONE, now - _MINUTE) for shard in shards]),
        _total(rows, [keys.phase_range(queue, shard, keys.DEAD) for shard in shards]),
    )
    return QueueStats(
        tasks=tasks.all.rows,
        oldest_eta=tasks.oldest,
        executed_last_minute=executed.rows,
        in_flight=tasks.leased.rows,
        dead=dead.rows,
        enforced_rate=None if record.rate is None else record.rate.per_second,
        paused=record.paused,
        truncated=any(count.full for count in (tasks.all, tasks.leased, executed, dead)),
    )


async def _tasks(rows: Rows, shards: int, now: int) -> _Tasks:
    """Count by one query where there are fewer tasks than shards, else by three a shard."""
    head = await rows.head(shards)
    if head is not None and len(head) < shards:
        leased = sum(row.leased_at(now) for row in head)
        return _Tasks(_Count(len(head)), _Count(leased), min((row.eta for row in head), default=None))
    due = [keys.due_range(rows.queue, shard) for shard in range(shards)]
    firsts, tasks, running = await asyncio.gather(
        asyncio.gather(*(rows.scan(each, 1) for each in due)),
        _total(rows, due),
        _total(rows, [keys.phase_range(rows.queue, shard, keys.LEASED, now + 1) for shard in range(shards)]),
    )
    return _Tasks(tasks, running, min((row.eta for first in firsts for row in first), default=None))


async def _total(rows: Rows, ranges: list[tuple[Filter, ...]]) -> _Count:
    limit = int(limits.COUNTED_ROWS)
    counts = await asyncio.gather(*(rows.count(each, limit) for each in ranges))
    return _Count(sum(counts), limit in counts)


async def listing(rows: Rows, state: Listed, limit: int) -> list[TaskInfo]:
    """Return the first `limit` tasks of a state, by ETA."""
    if not 1 <= limit <= limits.LISTED_TASKS:
        raise InvalidInput(f"limit is {limit}: want 1 to {limits.LISTED_TASKS}")
    record = await rows.record()
    now = rows.clock.now()
    found = await asyncio.gather(
        *(rows.scan(_range(rows.queue, shard, state, now), limit) for shard in range(record.shards))
    )
    first = sorted((row for part in found for row in part), key=lambda row: (row.eta, row.name))[:limit]
    return [_info(row, now, b"") for row in first]


async def info(rows: Rows, row: Row) -> TaskInfo:
    """Return one row with its payload."""
    payloads = await rows.payloads([row]) if row.beside else {}
    return _info(row, rows.clock.now(), payloads.get(row.key, b""))


def _range(queue: str, shard: int, state: Listed, now: int) -> tuple[Filter, ...]:
    if state == "all":
        return keys.due_range(queue, shard)
    if state == "leased":
        return keys.phase_range(queue, shard, keys.LEASED, now + 1)
    return keys.phase_range(queue, shard, keys.DEAD)


def _info(row: Row, now: int, payload: bytes) -> TaskInfo:
    return TaskInfo(
        name=row.name,
        state="dead" if row.state == "dead" else "leased" if row.leased_at(now) else _waits(row, now),
        task=row.decoded(payload),
        eta=row.eta,
        added_at=row.added_at,
        attempts=row.attempts,
        size=row.size,
        error=row.error or None,
    )


def _waits(row: Row, now: int) -> Literal["waiting", "delayed"]:
    return "waiting" if row.eta <= now else "delayed"
