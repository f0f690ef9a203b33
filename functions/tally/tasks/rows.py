"""A pull queue's rows in the Store: reading, counting and committing them, and the queue's own record.

It knows the store's limits and nothing of leases. A reply that says that the version guard is not honoured stops it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, TypeVar, cast

from tally import limits
from tally.clock import Clock, apart
from tally.errors import Conflict, Refused, Unavailable, UnsafeStore
from tally.ports import Committed, Entity, Filter, Insert, Key, OnConflict, Query, Store, Update, Value, Write, read
from tally.retry import full_jitter
from tally.tasks import keys
from tally.tasks.row import FORMAT, Row, from_entity
from tally.tasks.start_rate import StartRate

T = TypeVar("T")
TRIES = 8
DEFAULT_SHARDS = 16
_PAGE = 250  # rows of at most 60 kB, their headers escaped: an answer that a channel takes
_RECORD_LIFETIME = 1.0  # seconds for which the queue's record is believed


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is stored of the queue itself; version 0 = nothing yet. `shards` never changes."""

    shards: int
    paused: bool = False
    rate: StartRate | None = None
    version: int = 0


class Rows:
    """`shards`: of a new queue; None takes what is stored, or 16. `random` also makes the ids: give a SystemRandom."""

    def __init__(self, store: Store, *, queue: str, clock: Clock, random: Random, shards: int | None) -> None:
        self.queue = queue
        self.clock = clock
        self.random = random
        self._store = store
        self._wanted = shards
        self._record = Record(shards=0)
        self._believed_until = -inf
        self.skew = 0  # (µs) how far, at least, this clock was from the store's when the record was read

    def new_id(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    async def pause(self, attempt: int) -> None:
        """Wait before another try of what failed."""
        await asyncio.sleep(full_jitter(attempt, base=0.05, cap=2.0, random=self.random))

    async def persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what a read returns, trying again while the store does not answer; Unavailable after TRIES."""
        for attempt in range(1, TRIES):
            with suppress(Unavailable):
                return await call()
            await self.pause(attempt)
        return await call()

    async def record(self, *, create: bool = False, fresh: bool = False) -> Record:
        """Return the queue's record, at most a second old; one that is not there yet is made only if `create`.

        Raises Conflict if the queue was made with another number of shards than is asked for.
        """
        now = asyncio.get_running_loop().time()
        if fresh or now >= self._believed_until or (create and not self._record.version):
            self._record = await self._read_record(create=create)
            self._believed_until = now + _RECORD_LIFETIME
        if self._wanted not in (None, self._record.shards):
            raise Conflict(f"queue {self.queue} has {self._record.shards} shards, not {self._wanted}")
        return self._record

    async def set_record(self, change: Callable[[Record], Record]) -> None:
        """Change the queue's settings; other processes notice within a second."""
        for attempt in range(1, TRIES + 1):
            record = await self.record(create=True, fresh=True)
            changed = change(record)
            if changed == record:
                return
            entity = self._entity(changed)
            try:
                await self.commit([Update(entity=entity, base_version=record.version, on_conflict=OnConflict.FAIL)])
            except Refused:
                await self.pause(attempt)
            else:
                self._believed_until = -inf
                return
        raise self._contended()

    async def find(self, wanted: Iterable[Key]) -> dict[Key, Row]:
        """Read rows by key; one that is not in the answer is missing for certain."""
        found: dict[Key, Row] = {}
        for part in chunks(list(wanted), _PAGE):
            entities, _ = await read(self._store, part)
            found.update((key, from_entity(entity)) for key, entity in entities.items())
        return found

    async def entity(self, key: Key) -> Entity | None:
        """Read one entity that is no row."""
        return (await read(self._store, [key]))[0].get(key)

    async def payloads(self, rows: Sequence[Row]) -> dict[Key, bytes]:
        """Read the payloads that lie beside the rows, by the rows' keys, few enough at a time for one answer."""
        found: dict[Key, bytes] = {}
        for part in by_size(rows, lambda row: row.size):
            entities, _ = await read(self._store, [keys.payload(row.key) for row in part])
            found.update((key[:-1], cast(bytes, entity.properties["payload"])) for key, entity in entities.items())
        return found

    async def scan(self, filters: tuple[Filter, ...], limit: int, order: str | None = None) -> list[Row]:
        """Read the first rows of a range, in its order or another, but for those of a format newer than this code."""
        entities = await self._first(filters, limit, order)
        return [from_entity(entity) for entity in entities if entity.properties["v"] == FORMAT]

    async def head(self, limit: int) -> list[Row] | None:
        """Read the first tasks of the queue, by shard, then ETA; None if one of these is of a newer format."""
        entities = await self._first(keys.dues_range(self.queue), limit)
        known = all(entity.properties["v"] == FORMAT for entity in entities)
        return [from_entity(entity) for entity in entities] if known else None

    async def _first(self, filters: tuple[Filter, ...], limit: int, order: str | None = None) -> list[Entity]:
        entities: list[Entity] = []
        cursor = None
        while len(entities) < limit:
            page = await self._store.query(
                Query(
                    kind=keys.TASK,
                    filters=filters,
                    order=() if order is None else (order,),
                    limit=min(_PAGE, limit - len(entities)),
                    cursor=cursor,
                )
            )
            entities += page.entities
            if (cursor := page.cursor) is None:
                break
        return entities

    async def count(self, filters: tuple[Filter, ...], limit: int) -> int:
        """Count the rows of a range, up to a limit."""
        total = 0
        cursor = None
        while total < limit:
            page = await self._store.query(
                Query(kind=keys.TASK, filters=filters, limit=min(1_000, limit - total), cursor=cursor, keys_only=True)
            )
            total += len(page.entities)
            if (cursor := page.cursor) is None:
                break
        return total

    async def commit(self, writes: Sequence[Write]) -> Committed:
        """Commit; raises what the store raises, and UnsafeStore if it does not honour the guard it was given."""
        committed = await self._store.commit(writes)
        if committed.conflict_detected:
            raise UnsafeStore("the store answered OK to a stale write that asked to fail")
        return committed

    async def _read_record(self, *, create: bool) -> Record:
        key = keys.queue(self.queue)
        new = Record(shards=self._wanted or DEFAULT_SHARDS)
        for attempt in range(1, TRIES + 1):
            sent_at = self.clock.now()
            found, read_time = await read(self._store, [key])
            self.skew = apart(sent_at, read_time, self.clock.now())
            if entity := found.get(key):
                return _record(entity)
            if not create:
                return new
            try:
                await self.commit([Insert(self._entity(new))])
            except Refused:
                await self.pause(attempt)
        raise self._contended()

    def _contended(self) -> Unavailable:
        return Unavailable(f"the record of queue {self.queue} changed {TRIES} times while it was to be written")

    def _entity(self, record: Record) -> Entity:
        properties: dict[str, Value] = {"shards": record.shards, "paused": record.paused}
        if record.rate is not None:
            properties |= {"per_second": record.rate.per_second, "burst": record.rate.burst}
        return Entity(key=keys.queue(self.queue), properties=properties)


def _record(entity: Entity) -> Record:
    fields: Mapping[str, Any] = entity.properties
    rate = StartRate(per_second=fields["per_second"], burst=fields["burst"]) if "per_second" in fields else None
    return Record(shards=fields["shards"], paused=bool(fields["paused"]), rate=rate, version=entity.version)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def by_size(rows: Sequence[Row], weigh: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Cut rows into parts that one request or answer holds: COMMIT_BYTES; COMMIT_MUTATIONS with what lies beside."""
    part: list[Row] = []
    weight = mutations = 0
    for row in rows:
        heavy, entities = weigh(row), 1 + row.beside
        if part and (weight + heavy > limits.COMMIT_BYTES or mutations + entities > limits.COMMIT_MUTATIONS):
            yield part
            part, weight, mutations = [], 0, 0
        part.append(row)
        weight += heavy
        mutations += entities
    if part:
        yield part
