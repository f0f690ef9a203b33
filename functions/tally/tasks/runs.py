"""The records of runs in the store: read, changed by compare-and-swap, dropped.

A change is a function of the record as it is stored. It is tried again after a refusal and after an unknown outcome,
so it must know its own work when it meets it (run.py's tokens do that).
"""

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import cast

from msgspec.structs import replace

from tally import limits
from tally.clock import Clock
from tally.errors import NotFound, Refused, Unavailable, UnsafeStore
from tally.ports import Delete, Entity, Insert, Key, OnConflict, Store, Update, Value, Write, read
from tally.retry import full_jitter
from tally.tasks import blobs, expiry, keys
from tally.tasks import run as steps
from tally.tasks.rows import chunks
from tally.tasks.run import Run, State

_TRIES = 14  # about 10 s at least half the time: a store may refuse that long under contention


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

    async def claims(self, run_ids: Iterable[str], now: int) -> dict[str, int]:
        """Return the tokens of the claims on these runs that stand, and until when (µs) each does."""
        found: dict[Key, Entity] = {}
        for part in chunks([keys.run(run_id) for run_id in set(run_ids)], limits.LARGE_ENTITIES):
            found.update((await read(self._store, part))[0])
        runs = [_run(entity) for entity in found.values()]
        return {run.token: run.until for run in runs if run.token and run.until > now}

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
        await self._store.commit([Delete(key=keys.run(run_id)), *blobs.deletes(run.blob if run else None)])

    async def sweep(self) -> int:
        """Remove expired records and blobs, where the store does not do so itself; return how many."""
        now = self._clock.now()
        return sum([await expiry.sweep(self._store, kind, now) for kind in (keys.RUN, keys.BLOB)])

    async def _read(self, run_id: str) -> tuple[Run | None, int]:
        """Return the record and its version; an expired one counts as none, but its version is needed to replace it."""
        found, _ = await read(self._store, [keys.run(run_id)])
        entity = found.get(keys.run(run_id))
        if entity is None:
            return None, 0
        run = _run(entity)
        expired = run.expires is not None and run.expires <= self._clock.now()
        return (None if expired else run), entity.version


def restarted(run: Run, *, epoch: int) -> Run:
    """Return a parked run as it starts anew, its history kept."""
    return replace(run, state=State.QUEUED, epoch=epoch, due=epoch, hop=0, counted=0, first_started=None, ended=None)


def _write(run: Run, version: int) -> Write:
    properties: dict[str, Value] = {"data": steps.encode(run), "state": str(run.state)}
    entity = expiry.entity(keys.run(run.id), properties, run.expires)
    if version == 0:
        return Insert(entity)
    return Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)


def _run(entity: Entity) -> Run:
    return steps.decode(cast(bytes, entity.properties["data"]))
