"""Parked deliveries: what could not be run, was given up, or was taken by no queue. Kept whole, with the reason."""

from collections.abc import AsyncIterator
from typing import cast

import msgspec
from msgspec.structs import replace

from tally import limits
from tally.errors import NotFound
from tally.ports import Delete, Entity, Query, Store, Upsert, pages, read
from tally.tasks import keys


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """`call` is the function's name, as far as it is known; `error` the last one; `at` in µs."""

    id: str
    queue: str
    call: str
    reason: str
    error: str
    at: int
    payload: bytes
    headers: dict[str, str]
    epoch: int


class ParkedCalls:
    """The parked calls of task functions, by the ids of their runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, run_id: str) -> tuple[Parked, int]:
        """Return a parked call and its version. Raises NotFound."""
        key = keys.parked(run_id)
        found, _ = await read(self._store, [key])
        if key not in found:
            raise NotFound(f"no parked task {run_id!r}")
        return _parked(found[key]), found[key].version

    async def drop(self, run_id: str, version: int) -> None:
        """Drop a parked call; Refused when it has been parked anew since."""
        await self._store.commit([Delete(key=keys.parked(run_id), base_version=version)])

    async def all(self) -> AsyncIterator[Parked]:
        async for page in pages(self._store, Query(kind=keys.PARKED, limit=limits.LARGE_ENTITIES)):
            for entity in page.entities:
                yield _parked(entity)


def write(parked: Parked) -> Upsert:
    """Return the write that parks a call, for the commit that says so in its run."""
    properties = {"data": msgspec.json.encode(replace(parked, payload=b"")), "payload": parked.payload}
    return Upsert(Entity(key=keys.parked(parked.id), properties=properties))


def _parked(entity: Entity) -> Parked:
    data, payload = cast(bytes, entity.properties["data"]), cast(bytes, entity.properties["payload"])
    return replace(msgspec.json.decode(data, type=Parked), payload=payload)
