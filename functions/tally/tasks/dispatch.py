"""The Dispatcher port on nothing but a Store, for one machine: it writes down what `PushLoop` sends.

As on Cloud Tasks a name stays taken for an hour.
"""

from collections.abc import AsyncIterator, Callable

from tally.clock import SECOND, Clock
from tally.errors import Refused
from tally.ports import DispatchStats, Entity, Filter, HttpTask, Insert, Query, Store, Upsert, pages, read
from tally.tasks.entry import Entry
from tally.tasks.push_entities import (
    GONE,
    PAGE,
    TASK,
    TOMBSTONE,
    entry_of,
    forced,
    number,
    queue_key,
    task_id_of,
    task_key,
    to_entity,
    tombstone,
    update,
)

_TRIES = 8  # each refusal means that an attempt of the task has ended in between


class StoreDispatcher:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, queue: str, task: HttpTask) -> None:
        now = self._clock.now()
        at = max(now, task.at or 0)
        key = task_key(queue, task.id)
        stored = (await read(self._store, [key]))[0].get(key)
        deadline = round(task.deadline * SECOND)
        entry = Entry(id=task.id, sequence=0, created=now, eta=at, payload=b"", deadline=deadline)
        entity = to_entity(queue, task, entry)
        if stored is None:
            await self._store.commit([Insert(entity)])
        elif number(stored, "gone") and number(stored, "gone") + TOMBSTONE <= now:
            await self._store.commit([update(entity, stored.version)])
        else:
            raise Refused(f"task {task.id} is or was in queue {queue}", status="ALREADY_EXISTS")

    async def delete(self, queue: str, task_id: str) -> bool:
        return await self._alter(queue, task_id, lambda _, now: tombstone(queue, task_id, now))

    async def run(self, queue: str, task_id: str) -> bool:
        return await self._alter(queue, task_id, forced)

    async def purge(self, queue: str) -> None:
        start = self._clock.now()
        while [None async for entity in self._all(queue) if await self._purge_one(queue, entity, start)]:
            pass  # one may have been made due sooner, and so have moved behind the pass

    async def pause(self, queue: str) -> None:
        await self._set_paused(queue, paused=True)

    async def resume(self, queue: str) -> None:
        await self._set_paused(queue, paused=False)

    async def stats(self, queue: str) -> DispatchStats:
        etas = [number(entity, "eta") async for entity in self._all(queue)]
        found, _ = await read(self._store, [queue_key(queue)])
        return DispatchStats(
            tasks=len(etas),
            oldest_eta=min(etas, default=None),
            paused=any(entity.properties["paused"] for entity in found.values()),
        )

    async def close(self) -> None:
        """Do nothing: the store is another's."""

    async def _purge_one(self, queue: str, entity: Entity, start: int) -> bool:
        return entry_of(entity).created <= start and await self.delete(queue, task_id_of(entity))

    async def _alter(self, queue: str, task_id: str, new: Callable[[Entity, int], Entity]) -> bool:
        """Change a task that is there, again when an attempt of it has been settled meanwhile; say whether it was."""
        key = task_key(queue, task_id)
        for attempt in range(1, _TRIES + 1):
            stored = (await read(self._store, [key]))[0].get(key)
            if stored is None or number(stored, "gone"):
                return False
            try:
                await self._store.commit([update(new(stored, self._clock.now()), stored.version)])
            except Refused:
                if attempt == _TRIES:
                    raise
            else:
                return True
        raise AssertionError("the loop returns or raises")

    async def _set_paused(self, queue: str, *, paused: bool) -> None:
        await self._store.commit([Upsert(Entity(key=queue_key(queue), properties={"paused": paused}))])

    async def _all(self, queue: str) -> AsyncIterator[Entity]:
        query = Query(kind=TASK, filters=(Filter("eta", "<", GONE),), order=("eta",), limit=PAGE)
        async for page in pages(self._store, query):
            for entity in page.entities:
                if entity.properties["queue"] == queue:
                    yield entity
