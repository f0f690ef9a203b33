"""PushLoop: sends the push tasks of a StoreDispatcher, when the schedule of their queue says so. One process at a time.

It reads what is due, sends it, and writes down what came of it; only the store remembers, so another process may go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random

from tally.clock import SECOND, Clock
from tally.errors import BackendError, NotFound, Refused, TallyError
from tally.logs import event
from tally.ports import Delete, Entity, Filter, HttpTask, Insert, Key, Query, Store, read
from tally.retry import UNLIMITED, RetryPolicy
from tally.tasks.entry import DEADLINE_EXCEEDED, Dispatch, Ending, Outcome
from tally.tasks.push_entities import (
    GONE,
    LOOP,
    PAGE,
    TASK,
    TOMBSTONE,
    entry_of,
    number,
    queue_key,
    queue_of,
    task_id_of,
    task_key,
    task_of,
    to_entity,
    tombstone,
    update,
)
from tally.tasks.rate import RateLimits
from tally.tasks.schedule import Schedule

POLL = 0.1  # seconds between looks at the store
LEASE = 10 * SECOND  # how long the loop of a dead process keeps others out
Send = Callable[[HttpTask], Awaitable[int]]


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
        if stored is not None and stored.properties["owner"] != self._owner and number(stored, "until") > now:
            return False
        entity = Entity(key=key, properties={"owner": self._owner, "until": now + LEASE})
        try:
            await self._store.commit([Insert(entity) if stored is None else update(entity, stored.version)])
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
            schedule = self._schedule(queue_of(entity), now)
            known = self._known.get(entity.key)
            if known is None:
                self._known[entity.key] = entity
                schedule.restore(replace(entry_of(entity), sequence=next(self._sequence)))
            if number(entity, "forced") and (known is None or known.version != entity.version):
                self._force(entity, schedule, now)
        keys = [queue_key(queue) for queue in self._schedules]
        found = (await read(self._store, keys))[0] if keys else {}
        for queue, schedule in self._schedules.items():
            settings = found.get(queue_key(queue))
            if settings is not None and settings.properties["paused"]:
                schedule.pause()
            else:
                schedule.resume(now)

    async def _send_due(self) -> None:
        now = self._clock.now()
        for queue, schedule in self._schedules.items():
            for dispatch in schedule.due(now):
                self._start(queue, schedule, dispatch)

    def _force(self, entity: Entity, schedule: Schedule, now: int) -> None:
        """Send a task past the schedule; one that is out already is forced when it comes back with a failure."""
        task_id = task_id_of(entity)
        with suppress(NotFound):  # it is past the retention
            if not schedule.get(task_id, now).running:
                self._known[entity.key] = entity
                self._start(queue_of(entity), schedule, schedule.force(task_id, now))

    def _start(self, queue: str, schedule: Schedule, dispatch: Dispatch) -> None:
        sending = asyncio.create_task(self._attempt(queue, schedule, dispatch))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _attempt(self, queue: str, schedule: Schedule, dispatch: Dispatch) -> None:
        key = task_key(queue, dispatch.entry.id)
        try:
            stored = (await read(self._store, [key]))[0].get(key)
            if stored is not None and not number(stored, "gone"):
                await self._send_one(queue, schedule, dispatch, stored)
        except BackendError as error:  # deleted in the meantime, or the store is out: the store's word counts
            event("push-not-settled", queue=queue, task=dispatch.entry.id, error=error)
        self._known.pop(key, None)
        self._forget(schedule, dispatch.entry.id)

    async def _send_one(self, queue: str, schedule: Schedule, dispatch: Dispatch, stored: Entity) -> None:
        task = task_of(stored)
        outcome = await self._ask(task)
        now = self._clock.now()
        settled = schedule.finish(dispatch, outcome, now)
        if settled.entry is None:
            return
        gone = settled.ending in (Ending.SUCCEEDED, Ending.EXHAUSTED)
        entity = tombstone(queue, task.id, now) if gone else to_entity(queue, task, settled.entry)
        try:
            await self._store.commit([update(entity, stored.version)])
        except Refused:
            now_stored = (await read(self._store, [stored.key]))[0].get(stored.key)
            if now_stored is None or not gone or not number(now_stored, "forced"):
                raise
            await self._store.commit([update(entity, now_stored.version)])  # it was forced meanwhile, and is done
        event("pushed", queue=queue, task=task.id, status=outcome.status, ending=settled.ending.value)

    async def _sweep(self) -> None:
        """Once a minute remove tombstones that have served their time; one that a new task has taken over stays."""
        now = self._clock.now()
        if now < self._swept + 60 * SECOND:
            return
        self._swept = now
        old = (Filter("eta", ">=", GONE), Filter("eta", "<=", GONE + now - TOMBSTONE))
        while entities := (await self._store.query(Query(kind=TASK, filters=old, order=("eta",), limit=PAGE))).entities:
            try:
                await self._store.commit([Delete(key=each.key, base_version=each.version) for each in entities])
            except Refused:
                break  # a name was taken again meanwhile; the next sweep sees what is left

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
