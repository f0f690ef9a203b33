"""Adding tasks to a pull queue: any number, one outcome each, in order; every unknown outcome is resolved by reading.

An enqueue writes its own id into its rows. When a commit is refused, or its reply lost, the rows that are there with
that id are its own: added; with another: the name is in use.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tally.errors import InvalidInput, Refused, Unavailable
from tally.ports import Key, Write
from tally.tasks.outcome import Outcome, Status
from tally.tasks.row import Row, insert, made, take_over
from tally.tasks.rows import TRIES, Rows, by_size
from tally.tasks.task import Task

_CONCURRENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Tasks as writes for a commit of the caller's own: the tasks exist if and only if it is applied.

    `names` of the tasks, in order. A name that is in use refuses the whole commit.
    """

    writes: tuple[Write, ...]
    names: tuple[str, ...]


@dataclass(slots=True)
class _Batch:
    """What is left to add and what became of the rest, by key."""

    left: dict[Key, Row]
    payloads: dict[Key, bytes]
    tombstones: dict[Key, Row] = field(default_factory=dict)
    settled: dict[Key, Status] = field(default_factory=dict)

    def writes(self) -> list[Write]:
        writes: list[Write] = []
        for key, row in self.left.items():
            tombstone = self.tombstones.get(key)
            payload = self.payloads[key]
            writes += insert(row, payload) if tombstone is None else take_over(tombstone, row, payload)
        return writes

    def settle(self, key: Key, status: Status) -> None:
        self.settled[key] = status
        del self.left[key]


async def add_many(rows: Rows, tasks: Sequence[Task]) -> list[Outcome]:
    """Add tasks; return one outcome a task, in order.

    Raises Unavailable only when the queue's own record cannot be read: then nothing was added.
    """
    shards = (await rows.record(create=True)).shards
    now, enqueue = rows.clock.now(), rows.new_id()
    outcomes: list[Outcome | Key] = []
    new: dict[Key, Row] = {}
    payloads: dict[Key, bytes] = {}
    for task in tasks:
        try:
            row = made(task, queue=rows.queue, shards=shards, now=now, added_by=enqueue, nameless=rows.new_id())
        except InvalidInput as error:
            outcomes.append(Outcome(status="invalid", name=task.name, error=error.message))
            continue
        if row.key in new:
            outcomes.append(Outcome(status="exists", name=row.name, error="named twice in one call"))
        else:
            outcomes.append(row.key)
            new[row.key], payloads[row.key] = row, task.payload
    settled = await _add(rows, new, payloads, enqueue)
    return [
        each if isinstance(each, Outcome) else Outcome(status=settled[each], name=new[each].name) for each in outcomes
    ]


async def prepare(rows: Rows, tasks: Sequence[Task]) -> Prepared:
    """Return tasks as writes; raises InvalidInput for one that the queue cannot hold, Unavailable for the store."""
    shards = (await rows.record(create=True)).shards
    now, enqueue = rows.clock.now(), rows.new_id()
    new = [
        made(task, queue=rows.queue, shards=shards, now=now, added_by=enqueue, nameless=rows.new_id()) for task in tasks
    ]
    batch = _Batch({row.key: row for row in new}, {row.key: task.payload for row, task in zip(new, tasks, strict=True)})
    if len(batch.left) < len(new):
        raise InvalidInput("a task name is given twice")
    found = await rows.find(row.key for row in new if row.named)
    batch.tombstones = {key: row for key, row in found.items() if row.gone_at <= now}
    return Prepared(writes=tuple(batch.writes()), names=tuple(row.name for row in new))


async def _add(rows: Rows, new: dict[Key, Row], payloads: dict[Key, bytes], enqueue: str) -> dict[Key, Status]:
    gate = asyncio.Semaphore(_CONCURRENT)
    batches = [
        _Batch({row.key: row for row in part}, {row.key: payloads[row.key] for row in part})
        for part in by_size(list(new.values()), lambda row: row.weight + row.size)
    ]

    async def work(batch: _Batch) -> None:
        async with gate:
            await _commit(rows, batch, enqueue)

    await asyncio.gather(*(work(batch) for batch in batches))
    return {key: status for batch in batches for key, status in batch.settled.items()}


async def _commit(rows: Rows, batch: _Batch, enqueue: str) -> None:
    """Commit until nothing of the batch is left to add; what the store never answers for is `unknown`."""
    failures = 0
    while batch.left and failures < TRIES:
        try:
            await rows.commit(batch.writes())
        except Refused:
            try:
                if not await _sort_out(rows, batch, enqueue):
                    failures += 1
                    await rows.pause(failures)
                continue
            except Unavailable:
                pass
        except Unavailable:
            pass
        else:
            for key in list(batch.left):
                batch.settle(key, "added")
            return
        failures += 1
        await rows.pause(failures)
    for key in list(batch.left):
        batch.settle(key, "unknown")


async def _sort_out(rows: Rows, batch: _Batch, enqueue: str) -> bool:
    """Read what stands in the way of a refused commit; say whether anything new does."""
    found = await rows.find(batch.left)
    now = rows.clock.now()
    left, known = len(batch.left), batch.tombstones
    batch.tombstones = {}
    for key, row in found.items():
        if row.added_by == enqueue:
            batch.settle(key, "added")
        elif row.state != "done":
            batch.settle(key, "exists")
        elif row.gone_at > now:
            batch.settle(key, "tombstoned")
        else:
            batch.tombstones[key] = row
    return len(batch.left) < left or batch.tombstones != known
