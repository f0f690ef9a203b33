"""A task's row in the store and what may become of it. Pure: every change is a function from row to row.

States: `ready` (waits, or is leased until its `eta`), `dead` (a dead letter) and `done` (a tombstone that keeps the
name taken). An enqueue leaves its id in the row (`added_by`), a lease its token (`token`), whoever settled it last its
token (`settled_by`): by these a writer whose reply was lost finds out what became of its write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tally import limits
from tally.clock import SECOND, to_datetime
from tally.errors import TooLarge
from tally.ports import Delete, Entity, Insert, Key, OnConflict, Update, Write
from tally.tasks import envelope, keys
from tally.tasks.task import Task, seconds

State = Literal["ready", "dead", "done"]
FOREVER = 1 << 62
NAMED_TOMBSTONE = 86_400 * SECOND
# A nameless task leaves one too: while a lost reply to its enqueue is resolved, it must not look as if never added.
NAMELESS_TOMBSTONE = 600 * SECOND
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`task` is the envelope without payload; `payload` is None when it lies beside the row. Instants in µs.

    `eta`: due then, or leased until then; of a dead letter when it died, of a tombstone when it was finished.
    `keep_name_until` bounds the tombstone.
    """

    queue: str
    shard: int
    name: str
    key: Key
    state: State = "ready"
    version: int = 0
    task: bytes = b""
    tag: str | None = None
    payload: bytes | None = field(default=b"", repr=False)
    size: int = 0
    eta: int
    ends: int = FOREVER
    added_at: int
    added_by: str
    named: bool
    unique_until: int = 0
    attempts: int = 0
    first_attempt_at: int = 0
    token: str = ""
    settled_by: str = ""
    error: str = ""
    gone_at: int = FOREVER

    @property
    def beside(self) -> bool:
        """Tell whether the payload lies in an entity of its own."""
        return self.payload is None

    @property
    def weight(self) -> int:
        """Return about how many bytes the row takes in a request."""
        return len(self.task) + len(self.payload or b"") + len(self.error.encode()) + 3 * len(self.name) + 1_000

    def leased_at(self, now: int) -> bool:
        return self.state == "ready" and bool(self.token) and self.eta > now

    def decoded(self, payload: bytes = b"") -> Task:
        """Return the task as it was enqueued, its delays as instants; `payload` is the one that lies beside the row."""
        task = envelope.decode(self.task)
        return replace(task, payload=payload if self.payload is None else self.payload)


def made(task: Task, *, queue: str, shards: int, now: int, added_by: str, nameless: str) -> Row:
    """Return the row of a new task; `nameless` is the name that it takes if it has none.

    Raises TooLarge if a pull queue cannot hold it.
    """
    size = len(task.payload)
    if size > limits.PULL_TASK_BYTES:
        raise TooLarge(f"payload of {size} bytes: the limit of a pull queue is {limits.PULL_TASK_BYTES}")
    identity = task.identity(queue)
    name = identity or nameless
    place = keys.task(queue, name, shards)
    stored = replace(task.at(now), payload=b"", name=None if task.unique else name)
    ends = task.ends(now)
    return Row(
        queue=queue,
        shard=place.shard,
        name=name,
        key=place.key,
        task=envelope.encode(stored),
        tag=task.tag,
        payload=task.payload if size <= limits.INLINE_BYTES else None,
        size=size,
        eta=task.due(now),
        ends=FOREVER if ends is None else ends,
        added_at=now,
        added_by=added_by,
        named=identity is not None,
        unique_until=0 if task.unique is None else now + round(seconds("period", task.unique.period) * SECOND),
    )


def leased(row: Row, *, token: str, now: int, until: int) -> Row:
    """Return the row as `token` holds it; each lease is an attempt."""
    return replace(
        row,
        token=token,
        eta=until,
        attempts=row.attempts + 1,
        first_attempt_at=row.first_attempt_at or now,
    )


def extended(row: Row, *, until: int) -> Row:
    return replace(row, eta=until)


def released(row: Row, *, due: int, error: str | None, counts: bool = True) -> Row:
    """Return the row as its holder gives it back; unless the lease `counts` it is no attempt."""
    attempts = row.attempts - (not counts)
    return replace(
        row,
        token="",
        settled_by=row.token,
        eta=due,
        error=row.error if error is None else _cut(error),
        attempts=attempts,
        first_attempt_at=row.first_attempt_at if attempts else 0,
    )


def dead(row: Row, *, now: int, error: str, by: str) -> Row:
    """Return the dead letter of a row; `by` is the token of its lease, or of the lessee that found it past limits."""
    return replace(row, state="dead", token="", settled_by=by, eta=now, error=_cut(error))


def due_now(row: Row, now: int) -> Row | None:
    """Return a row that waits as one that is due, its attempts and error kept; None for one that does not wait."""
    waits = row.state == "ready" and not row.token and row.eta > now
    return replace(row, eta=now) if waits else None


def replayed(row: Row, *, now: int) -> Row:
    """Return a dead letter as a task that is due now and has all its attempts; it keeps its last error."""
    return replace(row, state="ready", settled_by="", eta=now, ends=FOREVER, attempts=0, first_attempt_at=0)


def done(row: Row, *, now: int, by: str = "") -> Row:
    """Return the tombstone of a row: finished `by` the lease of this token, or deleted ("")."""
    keep = NAMED_TOMBSTONE if row.named and not row.unique_until else NAMELESS_TOMBSTONE
    return replace(
        row,
        state="done",
        token="",
        settled_by=by,
        task=b"",
        payload=b"",
        error="",
        eta=now,
        gone_at=max(now + keep, row.unique_until),
    )


def insert(row: Row, payload: bytes) -> list[Write]:
    """Return the writes of a new task."""
    return [Insert(to_entity(row)), *_beside(row, payload)]


def take_over(tombstone: Row, row: Row, payload: bytes) -> list[Write]:
    """Return the writes of a new task in the place of a tombstone that has served its time."""
    return [update(tombstone, row), *_beside(row, payload)]


def update(old: Row, new: Row) -> Write:
    return Update(entity=to_entity(new), base_version=old.version, on_conflict=OnConflict.FAIL)


def change(changes: Sequence[tuple[Row, Row]]) -> list[Write]:
    """Return the writes from each old row to the new: the updates in order, then what lay beside new tombstones."""
    beside = [Delete(key=keys.payload(old.key)) for old, new in changes if old.beside and not new.beside]
    return [*(update(old, new) for old, new in changes), *beside]


def to_entity(row: Row) -> Entity:
    """Return the entity of a row. What queries look for is in four strings; all else is unindexed."""
    properties: dict[str, Any] = {
        "v": FORMAT,
        "queue": row.queue,
        "shard": row.shard,
        "name": row.name,
        "state": row.state,
        "task": row.task,
        "tag": row.tag,
        "payload": row.payload,
        "size": row.size,
        "eta": row.eta,
        "ends": row.ends,
        "added_at": row.added_at,
        "added_by": row.added_by,
        "named": row.named,
        "unique_until": row.unique_until,
        "attempts": row.attempts,
        "first_attempt_at": row.first_attempt_at,
        "token": row.token,
        "settled_by": row.settled_by,
        "error": row.error,
        "gone_at": row.gone_at,
    }
    indexed = _index(row)
    if row.state == "done":
        properties[keys.EXPIRE_AT] = to_datetime(row.gone_at)
    return Entity(key=row.key, properties={**properties, **indexed}, indexed=frozenset(indexed))


def from_entity(entity: Entity) -> Row:
    """Return the row of an entity that `to_entity` made."""
    fields: Mapping[str, Any] = entity.properties
    return Row(key=entity.key, version=entity.version, **{name: fields[name] for name in _FIELDS})


_FIELDS = tuple(name for name in Row.__slots__ if name not in ("key", "version"))


def _index(row: Row) -> dict[str, str]:
    where = row.queue, row.shard
    if row.state == "ready":
        index = {
            keys.DUE: keys.due(*where, row.eta, row.name),
            keys.TAGGED: keys.tagged(*where, row.tag, row.eta, row.name),
        }
        return {**index, keys.PHASE: keys.phase(*where, keys.LEASED, row.eta)} if row.token else index
    if row.state == "dead":
        return {keys.PHASE: keys.phase(*where, keys.DEAD, row.eta)}
    index = {keys.GONE: keys.gone(*where, row.gone_at)}
    return {**index, keys.PHASE: keys.phase(*where, keys.DONE, row.eta)} if row.settled_by else index


def _beside(row: Row, payload: bytes) -> list[Write]:
    if not row.beside:
        return []
    return [Insert(Entity(key=keys.payload(row.key), properties={"payload": payload}))]


def _cut(error: str) -> str:
    data = error.encode(errors="replace")
    return error if len(data) <= limits.ERROR_BYTES else data[: limits.ERROR_BYTES].decode(errors="ignore")
