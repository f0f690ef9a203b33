"""Changing a pull queue's tasks without a lease: by name, all of them, and the tombstones whose time is over."""

from collections.abc import Callable

from tally import limits
from tally.errors import Refused, Unavailable
from tally.ports import Delete
from tally.tasks import keys
from tally.tasks.row import Row, change, done
from tally.tasks.rows import TRIES, Rows

_BATCH = int(limits.COMMIT_MUTATIONS) // 2  # a row, and what lies beside it


async def alter(rows: Rows, name: str, new: Callable[[Row, int], Row | None]) -> bool:
    """Change one live or dead row, whoever holds it; say whether it was there. `new` returns None to leave it."""
    key = keys.task(rows.queue, name, (await rows.record()).shards).key
    tried = False
    for attempt in range(1, TRIES + 1):
        try:
            row = (await rows.find([key])).get(key)
            wanted = None if row is None or row.state == "done" else new(row, rows.clock.now())
            if row is None or wanted is None:
                return tried
            await rows.commit(change([(row, wanted)]))
            return True
        except (Refused, Unavailable) as error:
            tried = True
            if attempt == TRIES and isinstance(error, Unavailable):
                raise
            await rows.pause(attempt)
    raise Unavailable(f"task {name} of {rows.queue} changed {TRIES} times while it was to be altered")


async def purge(rows: Rows) -> int:
    """Delete what was added before now, until a whole pass over the shards finds nothing more."""
    record = await rows.record()
    start = rows.clock.now()
    total = 0
    while removed := sum([await _purge_shard(rows, shard, start) for shard in range(record.shards)]):
        total += removed
    return total


async def _purge_shard(rows: Rows, shard: int, start: int) -> int:
    """One pass in the order of ETAs. A commit that a lease is ahead of is tried in halves."""
    total = failures = after = 0
    size = _BATCH
    while True:
        found = await rows.scan(keys.due_range(rows.queue, shard, since=after), size)
        if not found:
            return total
        old = [row for row in found if row.added_at <= start]
        try:
            if old:
                await rows.commit(change([(row, done(row, now=start)) for row in old]))
        except (Refused, Unavailable) as error:
            failures += 1
            if failures == (TRIES if isinstance(error, Unavailable) else 4 * TRIES):
                raise
            size = max(1, size // 2)
            await rows.pause(min(failures, TRIES))
            continue
        failures, size = 0, min(_BATCH, size * 2)
        total += len(old)
        if len(old) < len(found):
            after = found[-1].eta + 1


async def sweep(rows: Rows) -> int:
    """Remove tombstones whose names are free again. Guarded: one that a new task has taken over stays."""
    record = await rows.record()
    now = rows.clock.now()
    total = 0
    for shard in range(record.shards):
        while found := await rows.scan(keys.gone_range(rows.queue, shard, now), int(limits.COMMIT_MUTATIONS)):
            try:
                await rows.commit([Delete(key=row.key, base_version=row.version) for row in found])
            except Refused:
                break  # another sweeps, or a name was taken again; the next sweep sees what is left
            total += len(found)
    return total
