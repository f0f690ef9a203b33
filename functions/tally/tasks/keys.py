"""Every kind, key and index of the task queues.

A queue's rows are spread over its shards by a hash of the name. What a query needs is one string that begins with queue
and shard and goes on with an instant, so that each query is a range of one property: no composite index is needed, and
no index grows at one end only.
"""

from hashlib import blake2b
from typing import NamedTuple

from tally.ports import Filter, Key

QUEUE = "TaskQueue"
RATE = "TaskRate"
TASK = "Task"
PAYLOAD = "TaskPayload"
OUTBOX = "TaskOutbox"
RUN = "TaskRun"
PARKED = "TaskParked"
BLOB = "TaskBlob"
SEMAPHORE = "TaskSemaphore"

# Composite indexes that the store must have before the queues run: (kind, properties). There are none.
INDEXES: tuple[tuple[str, tuple[str, ...]], ...] = ()
# Properties by which the store may delete entities that are past it (a time-to-live policy): (kind, property).
EXPIRE_AT = "expire_at"
TIME_TO_LIVE = ((TASK, EXPIRE_AT), (RUN, EXPIRE_AT), (BLOB, EXPIRE_AT))

# The indexed properties of a row.
DUE, TAGGED, PHASE, GONE = "due", "tagged", "phase", "gone"
# What `phase` tells apart.
LEASED, DEAD, DONE = "leased", "dead", "done"
EXPIRY_SHARDS = 16


class Place(NamedTuple):
    """Where a task's row lies: its key, and the part of the queue that it belongs to."""

    key: Key
    shard: int


def queue(name: str) -> Key:
    return ((QUEUE, name),)


def rate(queue_name: str) -> Key:
    return ((RATE, queue_name),)


def task(queue_name: str, name: str, shards: int) -> Place:
    """Return the place of a task. The hash first, so that names in sequence do not meet on one server."""
    spread = blake2b(f"{queue_name}:{name}".encode(), digest_size=8).digest()
    return Place(((TASK, f"{queue_name}:{spread.hex()}:{name}"),), int.from_bytes(spread) % shards)


def payload(task_key: Key) -> Key:
    """Return the key of a payload that is too large for the row."""
    return (*task_key, (PAYLOAD, 1))


def outbox(entry: str) -> Key:
    return ((OUTBOX, entry),)


def run(run_id: str) -> Key:
    return ((RUN, run_id),)


def parked(run_id: str) -> Key:
    return ((PARKED, run_id),)


def semaphore(key: str) -> Key:
    return ((SEMAPHORE, blake2b(key.encode(), digest_size=16).hexdigest()),)


def chunk(blob_id: str, index: int) -> Key:
    return ((BLOB, f"{blob_id}:{index}"),)


def due(queue_name: str, shard: int, eta: int, name: str) -> str:
    return f"{queue_name}:{shard:02d}:{eta:020d}:{name}"


def tagged(queue_name: str, shard: int, tag: str | None, eta: int, name: str) -> str:
    return f"{queue_name}:{shard:02d}:{_tag(tag)}:{eta:020d}:{name}"


def phase(queue_name: str, shard: int, state: str, instant: int) -> str:
    return f"{queue_name}:{shard:02d}:{state}:{instant:020d}"


def gone(queue_name: str, shard: int, instant: int) -> str:
    return f"{queue_name}:{shard:02d}:{instant:020d}"


def expires(key: Key, instant: int) -> str:
    spread = blake2b(str(key[-1][1]).encode(), digest_size=1).digest()[0]
    return f"{spread % EXPIRY_SHARDS:02d}:{instant:020d}"


def due_range(queue_name: str, shard: int, until: int | None = None, *, since: int = 0) -> tuple[Filter, ...]:
    """Return the filters for the tasks of a shard whose ETA is from `since` to `until`; None: to the end of time."""
    prefix = f"{queue_name}:{shard:02d}:"
    return Filter(DUE, ">=", f"{prefix}{since:020d}"), _range(DUE, prefix, until)[1]


def dues_range(queue_name: str) -> tuple[Filter, ...]:
    """Return the filters for the tasks of all shards, each shard's by ETA."""
    return Filter(DUE, ">=", f"{queue_name}:"), Filter(DUE, "<", f"{queue_name}:~")


def tags_range(queue_name: str, shard: int, after: str | None) -> tuple[Filter, ...]:
    """Return the filters for the tasks with any tag that comes after one in the index; None: with any."""
    prefix = f"{queue_name}:{shard:02d}:"
    begin = f"{prefix}." if after is None else f"{prefix}{_tag(after)};"  # ";" comes after ":", "." after "-"
    return Filter(TAGGED, ">=", begin), Filter(TAGGED, "<", f"{prefix}~")


def tagged_range(queue_name: str, shard: int, tag: str | None, until: int | None) -> tuple[Filter, ...]:
    """Return the filters for the tasks with a tag, or (None) without one, that are due at `until`; None: all."""
    return _range(TAGGED, f"{queue_name}:{shard:02d}:{_tag(tag)}:", until)


def phase_range(queue_name: str, shard: int, state: str, since: int = 0) -> tuple[Filter, ...]:
    """Return the filters for the rows in a phase whose instant is `since` or later."""
    prefix = f"{queue_name}:{shard:02d}:{state}:"
    return Filter(PHASE, ">=", f"{prefix}{since:020d}"), Filter(PHASE, "<", f"{prefix}~")


def gone_range(queue_name: str, shard: int, until: int) -> tuple[Filter, ...]:
    """Return the filters for the tombstones that have served their time at `until`."""
    return _range(GONE, f"{queue_name}:{shard:02d}:", until)


def expired_range(shard: int, until: int) -> tuple[Filter, ...]:
    """Return the filters for the entities of a kind whose time is over at `until`."""
    return _range(GONE, f"{shard:02d}:", until)


def _range(name: str, prefix: str, until: int | None) -> tuple[Filter, ...]:
    end = "~" if until is None else f"{until + 1:020d}"
    return Filter(name, ">=", prefix), Filter(name, "<", prefix + end)


def _tag(tag: str | None) -> str:
    return "-" if tag is None else blake2b(tag.encode(), digest_size=8).hexdigest()
