"""Semaphores: at most so many runs at once that have a key in common, over all workers.

    @task("feed.import", limit=Concurrent("customer-{customer}", 4))
    def import_feed(customer: str, url: str) -> None: ...

The places of a key are one entity. A place is held by the claim of a run and needs no heartbeat of its own: where all
are taken, those that have been so for long are looked up among the runs, and one whose claim is over is free. So a
worker that dies frees its place when its claim does; a suspended one may go on with its function, as claims allow it.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from string import Formatter
from typing import cast

import msgspec
from msgspec.structs import replace

from tally import limits
from tally.clock import SECOND, Clock
from tally.errors import InvalidInput, Refused, Unavailable
from tally.logs import event
from tally.ports import Delete, Entity, Insert, Key, OnConflict, Store, Update, Write, read
from tally.retry import full_jitter
from tally.tasks import keys
from tally.tasks.runs import Runs

TRUST = 60 * SECOND  # how long a place is believed before its claim is looked up
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Concurrent:
    """At most `limit` runs at once of those whose `key` is the same, whatever their functions.

    In `key` a parameter's name in braces stands for that argument.
    """

    key: str
    limit: int

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= limits.CONCURRENT_RUNS:
            raise InvalidInput(
                f"limit of {self.key!r} is {self.limit}: want 1 to {limits.CONCURRENT_RUNS} runs at once"
            )

    def check(self, parameters: Collection[str]) -> None:
        """Raise InvalidInput unless the key asks for arguments that the function has, and nothing else of them."""
        try:
            fields = [field[1:] for field in Formatter().parse(self.key) if field[1] is not None]
        except ValueError as error:
            raise InvalidInput(f"limit key {self.key!r}: {error}") from error
        for name, spec, conversion in fields:
            if name not in parameters or spec or conversion:
                raise InvalidInput(
                    f"limit key {self.key!r}: {{{name}}} is none of {', '.join(parameters) or 'nothing'}"
                )

    def of(self, arguments: Mapping[str, object]) -> str:
        """Return the key of a call. Those whose arguments cannot be written as text share one."""
        try:
            return self.key.format_map(arguments)
        except Exception as error:  # of a class of the user's
            event("limit-key-failed", level=logging.ERROR, key=self.key, error=error)
            return self.key


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Held by the claim `token` of a run; until `until` (µs) nobody asks whether that claim still stands."""

    run: str
    token: str
    until: int


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The places of one key that are taken."""

    key: str
    taken: tuple[Place, ...] = ()

    def doubtful(self, limit: int, now: int) -> list[Place]:
        """Return those whose claims must be looked up before it is known that all places are taken."""
        return [place for place in self.taken if place.until <= now] if len(self.taken) >= limit else []

    def without(self, token: str) -> "Places":
        return replace(self, taken=tuple(place for place in self.taken if place.token != token))

    def checked(self, doubtful: Collection[Place], claims: Mapping[str, int]) -> "Places":
        """Return what is left once doubtful places were looked up; `claims`: tokens that stand, and until when."""
        kept = [
            replace(place, until=claims[place.token]) if place in doubtful else place
            for place in self.taken
            if place not in doubtful or place.token in claims
        ]
        return replace(self, taken=tuple(kept))

    def with_(self, place: Place, limit: int) -> "Places | None":
        """Return the places with one more taken; None when there is no room."""
        return replace(self, taken=(*self.taken, place)) if len(self.taken) < limit else None


class Semaphores:
    def __init__(self, store: Store, runs: Runs, clock: Clock, random: Random) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._random = random

    async def enter(self, key: str, limit: int, run_id: str, token: str) -> Place | None:
        """Take a place for a claim that is about to be made; None when all are taken. Raises BackendError.

        The claim must be made well within TRUST, or the place is given up.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                places, version = await self._read(key)
                now = self._clock.now()
                mine = next((place for place in places.taken if place.token == token), None)
                if mine is not None:
                    return mine  # taken by a try whose reply was lost
                seen = places
                if doubtful := places.doubtful(limit, now):
                    places = places.checked(doubtful, await self._runs.claims([place.run for place in doubtful], now))
                place = Place(run=run_id, token=token, until=now + TRUST)
                wanted = places.with_(place, limit)
                if (wanted or places) != seen:
                    await self._store.commit([_write(wanted or places, version)])
                return None if wanted is None else place
            except (Refused, Unavailable) as error:
                if attempt == _TRIES:
                    if isinstance(error, Unavailable):
                        raise
                    return None  # so many are after a place: come back later
                await self._pause(attempt)
        raise AssertionError("the loop returns or raises")

    async def leave(self, key: str, token: str) -> None:
        """Give a place back. Raises BackendError: then it is free when its claim is looked up."""
        for attempt in range(1, _TRIES + 1):
            try:
                places, version = await self._read(key)
                left = places.without(token)
                if left != places:
                    await self._store.commit([_write(left, version)])
                return
            except (Refused, Unavailable):
                if attempt == _TRIES:
                    raise
                await self._pause(attempt)

    async def taken(self, key: str) -> int:
        """Return how many places of a key are taken, those of workers that died lately among them."""
        return len((await self._read(key))[0].taken)

    async def _read(self, key: str) -> tuple[Places, int]:
        place = keys.semaphore(key)
        entity = (await read(self._store, [place]))[0].get(place)
        if entity is None:
            return Places(key=key), 0
        return msgspec.json.decode(cast(bytes, entity.properties["data"]), type=Places), entity.version

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(full_jitter(attempt, base=0.02, cap=1.0, random=self._random))


def _write(places: Places, version: int) -> Write:
    """Return the write of a key's places; the entity goes with its last one."""
    key: Key = keys.semaphore(places.key)
    if not places.taken:
        return Delete(key=key, base_version=version)
    entity = Entity(key=key, properties={"data": msgspec.json.encode(places)})
    if version == 0:
        return Insert(entity)
    return Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)
