"""The outbox: tasks written in a caller's own transaction, and added to their queues once it has committed.

    entry = outbox.entry("mail", Task.json({"to": 7}))
    await store.commit([order, entry.write])      # both, or neither
    await outbox.drain([entry.id])                # now; or leave it to the sweeper

An entry gives its task a name, so that draining it twice, or by two processes, adds it once. What no queue takes is
parked with the reason. For a pull queue in the same store `PullQueue.prepare` does without it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from tally import limits
from tally.clock import SECOND, Clock
from tally.errors import Conflict, InvalidInput, NotFound, Refused, Rejected, TooLarge, Unavailable
from tally.logs import event
from tally.ports import Delete, Entity, Filter, Insert, OnConflict, Query, Store, Update, pages, read
from tally.tasks import envelope, keys
from tally.tasks.outcome import Outcome
from tally.tasks.parked import Parked
from tally.tasks.rows import chunks
from tally.tasks.task import Task, check_queue

WAITING, PARKED = "waiting", "parked"
_SHARDS = 16
_GRACE = 5 * SECOND  # an entry this young is left to its committer


class Adder(Protocol):
    """What the outbox asks of a queue."""

    async def add(self, task: Task) -> Outcome: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A task on its way: `write` goes into the caller's commit, `id` to `drain` after it."""

    id: str
    write: Insert


def entry(queue: str, task: Task, *, clock: Clock, random: Random) -> Entry:
    """Return the entry of a task; raises InvalidInput, and TooLarge over 900 kB of payload."""
    if len(task.payload) > limits.PULL_TASK_BYTES:
        raise TooLarge(f"payload of {len(task.payload)} bytes: the limit of the outbox is {limits.PULL_TASK_BYTES}")
    now = clock.now()
    entry_id = f"{random.getrandbits(128):032x}"
    properties: dict[str, Any] = {
        "queue": check_queue(queue),
        "task": envelope.encode(replace(task.at(now), payload=b"")),
        "payload": task.payload,
        WAITING: _place(entry_id, now),
    }
    return Entry(
        id=entry_id,
        write=Insert(Entity(key=keys.outbox(entry_id), properties=properties, indexed=frozenset({WAITING}))),
    )


class Outbox:
    """`queue` returns the queue of a name, or raises InvalidInput or NotFound for one that there is not."""

    def __init__(self, store: Store, queue: Callable[[str], Adder], *, clock: Clock, random: Random) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._random = random

    def entry(self, queue: str, task: Task) -> Entry:
        """Return the entry of a task, for the caller's commit."""
        return entry(queue, task, clock=self._clock, random=self._random)

    async def drain(self, entries: Iterable[str]) -> int:
        """Add the tasks of committed entries; return how many are added. What fails is left to the sweeper."""
        total = 0
        for part in chunks([keys.outbox(entry_id) for entry_id in entries], limits.LARGE_ENTITIES):
            found, _ = await read(self._store, part)
            total += await self._deliver(entity for entity in found.values() if WAITING in entity.properties)
        return total

    async def sweep(self) -> int:
        """Add the tasks of entries that no committer has drained; return how many. Run it every few seconds."""
        if not await self._any():
            return 0
        until = self._clock.now() - _GRACE
        total = 0
        for shard in range(_SHARDS):
            prefix = f"{shard:02d}:"
            filters = Filter(WAITING, ">=", prefix), Filter(WAITING, "<", f"{prefix}{until:020d}")
            async for page in pages(self._store, Query(kind=keys.OUTBOX, filters=filters, limit=limits.LARGE_ENTITIES)):
                total += await self._deliver(page.entities)
        return total

    async def _any(self) -> bool:
        """Say whether an entry waits in any shard, by one query: mostly there is none."""
        query = Query(kind=keys.OUTBOX, filters=(Filter(WAITING, ">=", ""),), limit=1, keys_only=True)
        async for page in pages(self._store, query):
            if page.entities:
                return True
        return False

    async def parked(self) -> AsyncIterator[Parked]:
        """Every entry that no queue took, by its id."""
        query = Query(kind=keys.OUTBOX, filters=(Filter(PARKED, ">=", ""),), limit=limits.LARGE_ENTITIES)
        async for page in pages(self._store, query):
            for entity in page.entities:
                yield _parked(entity)

    async def replay(self, entry_id: str) -> bool:
        """Bring a parked entry to its queue again; False when it was not taken: then it waits, or is parked anew.

        Raises NotFound, BackendError.
        """
        entity = await self._get_parked(entry_id)
        kept = {name: value for name, value in entity.properties.items() if name not in (PARKED, "reason")}
        waiting = Entity(
            key=entity.key,
            properties={**kept, WAITING: _place(entry_id, self._clock.now())},
            indexed=frozenset({WAITING}),
        )
        await self._store.commit([_update(waiting, entity.version)])
        return await self.drain([entry_id]) == 1

    async def drop(self, entry_id: str) -> None:
        """Delete a parked entry for good. Raises NotFound, BackendError."""
        entity = await self._get_parked(entry_id)
        await self._store.commit([Delete(key=entity.key, base_version=entity.version)])

    async def _get_parked(self, entry_id: str) -> Entity:
        key = keys.outbox(entry_id)
        entity = (await read(self._store, [key]))[0].get(key)
        if entity is None or PARKED not in entity.properties:
            raise NotFound(f"no parked outbox entry {entry_id!r}")
        return entity

    async def _deliver(self, entities: Iterable[Entity]) -> int:
        return sum(await asyncio.gather(*(self._add(entity) for entity in entities)))

    async def _add(self, entity: Entity) -> bool:
        fields: Mapping[str, Any] = entity.properties
        name = str(entity.key[-1][1])
        try:
            task = replace(envelope.decode(fields["task"]), payload=fields["payload"])
            named = task if task.name or task.unique else replace(task, name=f"outbox-{name}")
            await self._queue(fields["queue"]).add(named)
            await self._store.commit([Delete(key=entity.key)])
        except (Unavailable, Refused) as error:
            event("outbox-entry-waits", entry=name, queue=fields["queue"], reason=error.message)
            return False
        except (InvalidInput, NotFound, Conflict, Rejected) as error:
            await self._park(entity, error.message)
            return False
        return True

    async def _park(self, entity: Entity, reason: str) -> None:
        """Take an entry that no queue will ever take out of the sweeper's way; it stays, with the reason."""
        event("outbox-entry-parked", entry=entity.key[-1][1], reason=reason)
        properties = {name: value for name, value in entity.properties.items() if name != WAITING}
        parked = Entity(
            key=entity.key,
            properties={**properties, PARKED: entity.properties[WAITING], "reason": reason},
            indexed=frozenset({PARKED}),
        )
        try:
            await self._store.commit([_update(parked, entity.version)])
        except (Unavailable, Refused) as error:
            event("outbox-entry-waits", entry=entity.key[-1][1], reason=error.message)


def _place(entry_id: str, instant: int) -> str:
    """Return where an entry stands in the line: its shard, then the instant."""
    return f"{int(entry_id[0], _SHARDS):02d}:{instant:020d}"


def _update(entity: Entity, version: int) -> Update:
    return Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)


def _parked(entity: Entity) -> Parked:
    fields: Mapping[str, Any] = entity.properties
    return Parked(
        id=str(entity.key[-1][1]),
        queue=fields["queue"],
        call="",
        reason="no queue takes it",
        error=fields["reason"],
        at=int(fields[PARKED].partition(":")[2]),
        payload=fields["payload"],
        headers={},
        epoch=0,
    )
