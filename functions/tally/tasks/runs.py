"""The records of runs in the store: read, changed by compare-and-swap, dropped; and the parked calls beside them.

A change is a function of the record as it is stored. It is tried again after a refusal and after an unknown outcome,
so it must know its own work when it meets it (run.py's tokens do that).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random

import msgspec
from msgspec.structs import replace

from tally.clock import Clock, to_datetime
from tally.errors import NotFound, Refused, Unavailable, UnsafeStore
from tally.ports import Delete, Entity, Insert, Key, OnConflict, Query, Store, Update, Upsert, Write, read
from tally.retry import full_jitter
from tally.tasks import blobs
from tally.tasks import run as steps
from tally.tasks.run import Run, State

RUN = "TaskRun"
PARKED = "TaskParked"
_TRIES = 14  # about 10 s at least half the time: a store may refuse that long under contention


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that could not be run or was given up, whole, with the reason; `at` in µs."""

    id: str
    queue: str
    call: str
    reason: str
    error: str
    at: int
    payload: bytes
    headers: dict[str, str]
    epoch: int


class Gone(Exception):
    """Raised by a step of `Runs.change`: the record that it wants to change is not there any more."""


class Runs:
    def __init__(self, store: Store, clock: Clock, random: Random) -> None:
        self._store = store
        self._clock = clock
        self._random = random

    async def find(self, run_id: str) -> Run | None:
        """Return a run; None when there is no record of it, or one that has expired."""
        return (await self._read(run_id))[0]

    async def get(self, run_id: str) -> Run:
        """Return a run. Raises NotFound."""
        run = await self.find(run_id)
        if run is None:
            raise NotFound(f"no run {run_id!r}: never made, forgotten or expired")
        return run

    async def open(self, run: Run) -> tuple[Run, bool]:
        """Store a new run; return it and True, or the one that has this id already and False."""
        opened = await self.change(run.id, lambda stored: run if stored is None else stored)
        return opened, opened.epoch == run.epoch

    async def change(self, run_id: str, step: Callable[[Run | None], Run], extra: tuple[Write, ...] = ()) -> Run:
        """Apply a step to the stored record, with `extra` writes in the same commit; return what is stored then.

        Nothing is written when the step returns the record that it was given. Raises Refused or Unavailable when the
        store does not take it within about 10 s.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                stored, version = await self._read(run_id)
                run = step(stored)
                if run is not stored:
                    committed = await self._store.commit([_write(run, version), *extra])
                    if committed.conflict_detected:
                        raise UnsafeStore("the store answered OK to a stale write of a run")
                return run
            except (Refused, Unavailable):
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(full_jitter(attempt, base=0.05, cap=2.0, random=self._random))
        raise AssertionError("the loop returns or raises")

    async def forget(self, run_id: str) -> None:
        """Drop a record and its large result; the run itself, if it is still to come, is not stopped."""
        run = await self.find(run_id)
        await self._store.commit([Delete(key=_key(run_id)), *blobs.deletes(run.blob if run else None)])

    async def sweep(self) -> int:
        """Drop every expired record; return how many. In the cloud the store's TTL policy does that."""
        now, dropped = self._clock.now(), 0
        async for entity in self._all(RUN):
            run = _run(entity)
            if run.expires is not None and run.expires <= now:
                await self._store.commit([Delete(key=entity.key), *blobs.deletes(run.blob)])
                dropped += 1
        return dropped

    # Parked calls

    def park(self, parked: Parked) -> tuple[Write, ...]:
        """Return the write that parks a delivery, for the commit that says so in its run."""
        properties = {"data": msgspec.json.encode(replace(parked, payload=b"")), "payload": parked.payload}
        return (Upsert(Entity(key=_parked_key(parked.id), properties=properties)),)

    async def parked(self, run_id: str) -> tuple[Parked, int]:
        """Return a parked delivery and its version. Raises NotFound."""
        found, _ = await read(self._store, [_parked_key(run_id)])
        if not found:
            raise NotFound(f"no parked task {run_id!r}")
        entity = found[_parked_key(run_id)]
        return _parked(entity), entity.version

    async def drop_parked(self, run_id: str, version: int) -> None:
        """Drop a parked delivery, unless it has been parked anew since."""
        with suppress(Refused):
            await self._store.commit([Delete(key=_parked_key(run_id), base_version=version)])

    async def all_parked(self) -> AsyncIterator[Parked]:
        async for entity in self._all(PARKED):
            yield _parked(entity)

    async def _all(self, kind: str) -> AsyncIterator[Entity]:
        cursor: bytes | None = None
        while True:
            page = await self._store.query(Query(kind=kind, limit=100, cursor=cursor))
            for entity in page.entities:
                yield entity
            if page.cursor is None:
                return
            cursor = page.cursor

    async def _read(self, run_id: str) -> tuple[Run | None, int]:
        """Return the record and its version; an expired one counts as none, but its version is needed to replace it."""
        found, _ = await read(self._store, [_key(run_id)])
        entity = found.get(_key(run_id))
        if entity is None:
            return None, 0
        run = _run(entity)
        expired = run.expires is not None and run.expires <= self._clock.now()
        return (None if expired else run), entity.version


def _write(run: Run, version: int) -> Write:
    expires = None if run.expires is None else to_datetime(run.expires)
    properties = {"data": steps.encode(run), "state": str(run.state), "expires": expires}
    entity = Entity(key=_key(run.id), properties=properties)
    if version == 0:
        return Insert(entity)
    return Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)


def restarted(run: Run, *, epoch: int) -> Run:
    """Return a parked run as it starts anew, its history kept."""
    return replace(run, state=State.QUEUED, epoch=epoch, due=epoch, hop=0, counted=0, first_started=None, ended=None)


def _run(entity: Entity) -> Run:
    return steps.decode(_data(entity))


def _parked(entity: Entity) -> Parked:
    return replace(msgspec.json.decode(_data(entity), type=Parked), payload=_data(entity, "payload"))


def _data(entity: Entity, name: str = "data") -> bytes:
    data = entity.properties[name]
    return data if isinstance(data, bytes) else b""


def _key(run_id: str) -> Key:
    return ((RUN, run_id),)


def _parked_key(run_id: str) -> Key:
    return ((PARKED, run_id),)
