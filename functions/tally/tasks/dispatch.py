"""The Dispatcher port on nothing but a Store, for one machine: what Cloud Tasks does, by the same schedule.

`StoreDispatcher` writes tasks down; `PushLoop`, which one process at a time runs, reads those that are due, lets the
schedule of their queue say when each may go, sends it, and writes down what came of it. A name stays taken for an hour.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random

import msgspec

from tally.clock import SECOND, Clock
from tally.errors import BackendError, NotFound, Refused, TallyError
from tally.logs import event
from tally.ports import (
    Delete,
    DispatchStats,
    Entity,
    Filter,
    HttpTask,
    Insert,
    Key,
    OnConflict,
    Query,
    Store,
    Update,
    Upsert,
    Value,
    read,
)
from tally.retry import UNLIMITED, RetryPolicy
from tally.tasks.entry import DEADLINE_EXCEEDED, Dispatch, Ending, Entry, Outcome
from tally.tasks.rate import RateLimits
from tally.tasks.schedule import Schedule

TASK, QUEUE, LOOP = "PushTask", "PushQueue", "PushLoop"
TOMBSTONE = 3_600 * SECOND
GONE = 1 << 62  # the eta of a tombstone is this and the instant of its end: never due, and in order for the sweep
POLL = 0.1  # seconds between looks at the store
LEASE = 10 * SECOND  # how long the loop of a dead process keeps others out
PAGE = 200
Send = Callable[[HttpTask], Awaitable[int]]


class StoreDispatcher:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, queue: str, task: HttpTask) -> None:
        now = self._clock.now()
        at = max(now, task.at or 0)
        key = _key(queue, task.id)
        stored = (await read(self._store, [key]))[0].get(key)
        deadline = round(task.deadline * SECOND)
        entry = Entry(id=task.id, sequence=0, created=now, eta=at, payload=b"", deadline=deadline)
        entity = _entity(queue, task, entry)
        if stored is None:
            await self._store.commit([Insert(entity)])
        elif _number(stored, "gone") and _number(stored, "gone") + TOMBSTONE <= now:
            await self._store.commit([_update(entity, stored.version)])
        else:
            raise Refused(f"task {task.id} is or was in queue {queue}", status="ALREADY_EXISTS")

    async def delete(self, queue: str, task_id: str) -> bool:
        key = _key(queue, task_id)
        stored = (await read(self._store, [key]))[0].get(key)
        if stored is None or _number(stored, "gone"):
            return False
        await self._store.commit([_update(_tombstone(queue, task_id, self._clock.now()), stored.version)])
        return True

    async def purge(self, queue: str) -> None:
        async for entity in self._all(queue):
            await self.delete(queue, _task_id(entity))

    async def pause(self, queue: str) -> None:
        await self._set_paused(queue, paused=True)

    async def resume(self, queue: str) -> None:
        await self._set_paused(queue, paused=False)

    async def stats(self, queue: str) -> DispatchStats:
        etas = [_number(entity, "eta") async for entity in self._all(queue)]
        found, _ = await read(self._store, [_queue_key(queue)])
        return DispatchStats(
            tasks=len(etas),
            oldest_eta=min(etas, default=None),
            paused=any(entity.properties["paused"] for entity in found.values()),
        )

    async def close(self) -> None:
        """Do nothing: the store is another's."""

    async def _set_paused(self, queue: str, *, paused: bool) -> None:
        await self._store.commit([Upsert(Entity(key=_queue_key(queue), properties={"paused": paused}))])

    async def _all(self, queue: str) -> AsyncIterator[Entity]:
        cursor: bytes | None = None
        while True:
            query = Query(kind=TASK, filters=(Filter("eta", "<", GONE),), order=("eta",), limit=PAGE, cursor=cursor)
            page = await self._store.query(query)
            for entity in page.entities:
                if entity.properties["queue"] == queue:
                    yield entity
            if page.cursor is None:
                return
            cursor = page.cursor


class PushLoop:
    """Sends what is due. `send` returns the HTTP status of an attempt; it is cancelled at the task's deadline."""

    def __init__(
        self,
        store: Store,
        send: Send,
        *,
        clock: Clock,
        random: Random,
        limits: Mapping[str, RateLimits] | None = None,
    ) -> None:
        self._store = store
        self._send = send
        self._clock = clock
        self._owner = f"{random.getrandbits(64):016x}"
        self._limits = limits or {}
        self._schedules: dict[str, Schedule] = {}
        self._known: dict[Key, Entity] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._ours_until = 0
        self._sequence = count(1)
        self._swept = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop; then wait a moment for what is out, and leave the rest to the next loop."""
        while not stop.is_set():
            try:
                if await self._is_ours():
                    await self._take_in()
                    await self._send_due()
                    await self._sweep()
            except BackendError as error:
                event("push-loop-failed", error=error)
            try:
                async with asyncio.timeout(POLL):
                    await stop.wait()
            except TimeoutError:
                pass
        if self._sending:
            await asyncio.wait(self._sending, timeout=3)
        for sending in self._sending:
            sending.cancel()

    async def _is_ours(self) -> bool:
        """Take or keep the lease of the loop; False while another process has it."""
        now = self._clock.now()
        if now < self._ours_until - LEASE // 2:
            return True
        key: Key = ((LOOP, "loop"),)
        stored = (await read(self._store, [key]))[0].get(key)
        if stored is not None and stored.properties["owner"] != self._owner and _number(stored, "until") > now:
            return False
        entity = Entity(key=key, properties={"owner": self._owner, "until": now + LEASE})
        try:
            await self._store.commit([Insert(entity) if stored is None else _update(entity, stored.version)])
        except Refused:
            return False
        self._ours_until = now + LEASE
        return True

    async def _take_in(self) -> None:
        """Put into the schedules what has fallen due, and what the store says of pauses."""
        now = self._clock.now()
        page = await self._store.query(
            Query(kind=TASK, filters=(Filter("eta", "<=", now),), order=("eta",), limit=PAGE + len(self._known))
        )
        for entity in page.entities:
            if entity.key not in self._known:
                self._known[entity.key] = entity
                entry = replace(_entry(entity), sequence=next(self._sequence))
                self._schedule(_queue(entity), now).restore(entry)
        keys = [_queue_key(queue) for queue in self._schedules]
        found = (await read(self._store, keys))[0] if keys else {}
        for queue, schedule in self._schedules.items():
            settings = found.get(_queue_key(queue))
            if settings is not None and settings.properties["paused"]:
                schedule.pause()
            else:
                schedule.resume(now)

    async def _send_due(self) -> None:
        now = self._clock.now()
        for queue, schedule in self._schedules.items():
            for dispatch in schedule.due(now):
                sending = asyncio.create_task(self._attempt(queue, schedule, dispatch))
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)

    async def _attempt(self, queue: str, schedule: Schedule, dispatch: Dispatch) -> None:
        key = _key(queue, dispatch.entry.id)
        try:
            stored = (await read(self._store, [key]))[0].get(key)
            if stored is not None and not _number(stored, "gone"):
                await self._send_one(queue, schedule, dispatch, stored)
        except BackendError as error:  # deleted in the meantime, or the store is out: the store's word counts
            event("push-not-settled", queue=queue, task=dispatch.entry.id, error=error)
        self._known.pop(key, None)
        self._forget(schedule, dispatch.entry.id)

    async def _send_one(self, queue: str, schedule: Schedule, dispatch: Dispatch, stored: Entity) -> None:
        task = _task(stored)
        outcome = await self._ask(task)
        now = self._clock.now()
        settled = schedule.finish(dispatch, outcome, now)
        if settled.entry is None:
            return
        gone = settled.ending in (Ending.SUCCEEDED, Ending.EXHAUSTED)
        entity = _tombstone(queue, task.id, now) if gone else _entity(queue, task, settled.entry)
        await self._store.commit([_update(entity, stored.version)])
        event("pushed", queue=queue, task=task.id, status=outcome.status, ending=settled.ending.value)

    async def _sweep(self) -> None:
        """Once a minute remove tombstones that have served their time."""
        now = self._clock.now()
        if now < self._swept + 60 * SECOND:
            return
        self._swept = now
        old = (Filter("eta", ">=", GONE), Filter("eta", "<=", GONE + now - TOMBSTONE))
        while entities := (await self._store.query(Query(kind=TASK, filters=old, order=("eta",), limit=PAGE))).entities:
            await self._store.commit([Delete(key=entity.key) for entity in entities])

    async def _ask(self, task: HttpTask) -> Outcome:
        try:
            async with asyncio.timeout(task.deadline):
                status = await self._send(task)
        except TimeoutError:
            return DEADLINE_EXCEEDED
        except OSError as error:
            return Outcome(success=False, status=f"UNAVAILABLE: {error}", answered=False)
        except TallyError as error:
            return Outcome(success=False, status=error.code)
        return Outcome(success=200 <= status < 300, status=str(status), overload=status in (429, 503))

    def _forget(self, schedule: Schedule, task_id: str) -> None:
        """Let the store alone hold a task that waits: it is taken in again when it is due."""
        with suppress(NotFound):
            schedule.delete(task_id, self._clock.now())

    def _schedule(self, queue: str, now: int) -> Schedule:
        if queue not in self._schedules:
            limits = self._limits.get(queue, RateLimits())
            self._schedules[queue] = Schedule(limits, RetryPolicy(max_attempts=UNLIMITED), now=now, tombstone=0)
        return self._schedules[queue]


def _entity(queue: str, task: HttpTask, entry: Entry) -> Entity:
    properties: dict[str, Value] = {
        "queue": queue,
        "eta": entry.eta,
        "gone": 0,
        "task": msgspec.json.encode(replace(task, body=b"")),
        "body": task.body,
        "entry": msgspec.json.encode(replace(entry, payload=b"", retry=task.retry)),
    }
    return Entity(key=_key(queue, task.id), properties=properties, indexed=frozenset({"eta"}))


def _tombstone(queue: str, task_id: str, now: int) -> Entity:
    properties: dict[str, Value] = {"queue": queue, "eta": GONE + now, "gone": now}
    return Entity(key=_key(queue, task_id), properties=properties, indexed=frozenset({"eta"}))


def _update(entity: Entity, version: int) -> Update:
    return Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)


def _task(entity: Entity) -> HttpTask:
    return replace(msgspec.json.decode(_bytes(entity, "task"), type=HttpTask), body=_bytes(entity, "body"))


def _entry(entity: Entity) -> Entry:
    return replace(msgspec.json.decode(_bytes(entity, "entry"), type=Entry), eta=_number(entity, "eta"))


def _bytes(entity: Entity, name: str) -> bytes:
    value = entity.properties[name]
    return value if isinstance(value, bytes) else b""


def _number(entity: Entity, name: str) -> int:
    value = entity.properties[name]
    return value if isinstance(value, int) else 0


def _queue(entity: Entity) -> str:
    return str(entity.properties["queue"])


def _task_id(entity: Entity) -> str:
    return str(entity.key[0][1]).partition(":")[2]


def _key(queue: str, task_id: str) -> Key:
    return ((TASK, f"{queue}:{task_id}"),)


def _queue_key(queue: str) -> Key:
    return ((QUEUE, queue),)
