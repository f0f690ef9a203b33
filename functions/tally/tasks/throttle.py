"""Holds the leases of a pull queue to its rate, over all its workers.

The bucket is one entity. A worker takes the tokens of a batch by one write and leases as many tasks. It waits for half
a burst to be there, and asks for none while the queue has nothing due: there are a few writes for each burst, and none
while the queue is idle. What it did not use it gives back, unless another has taken since. After an unknown outcome
tokens may be lost, never doubled. A worker whose clock is ahead has the larger share; all have no more than the rate.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import NamedTuple, cast

from tally.clock import SECOND
from tally.errors import BackendError, Refused, Unavailable
from tally.ports import Entity, Insert, OnConflict, Update
from tally.tasks import keys
from tally.tasks.lease import Lease
from tally.tasks.rows import TRIES, Rows
from tally.tasks.start_rate import StartRate


class _Grant(NamedTuple):
    tokens: int
    version: int  # of the bucket after it


class Throttle:
    """The bucket of one queue, as one process sees it. `ready_in` is how long it is known to be too empty."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._full_at = 0
        self._version: int | None = None  # None: to be read; 0: there is none
        self._idle = True
        self._ready_at = -inf

    @property
    def ready_in(self) -> float:
        """Return the seconds before which it is no use to ask, 0 when there may be tokens."""
        return max(0.0, self._ready_at - asyncio.get_running_loop().time())

    async def lease(
        self,
        rate: StartRate,
        wanted: int,
        lease: Callable[[int], Awaitable[list[Lease]]],
        is_due: Callable[[], Awaitable[bool]],
    ) -> list[Lease]:
        """Lease as many of the wanted tasks as there are tokens for. Raises BackendError."""
        if self.ready_in or (self._idle and not await is_due()):
            return []
        grant = await self._take(rate, wanted)
        if grant is None:
            return []
        leases: list[Lease] = []
        try:
            leases = await lease(grant.tokens)
        finally:
            self._idle = not leases
            if len(leases) < grant.tokens:
                await self._give_back(rate, grant.tokens - len(leases), grant.version)
        return leases

    async def _take(self, rate: StartRate, wanted: int) -> _Grant | None:
        """Take up to `wanted` tokens; None when fewer are there than are worth a write."""
        worth = min(wanted, max(1, rate.burst // 2))
        for attempt in range(1, TRIES + 1):
            try:
                await self._look()
                now = self._rows.clock.now()
                tokens = min(wanted, rate.tokens(self._full_at, now))
                if tokens < worth:
                    wait = (rate.ready_at(self._full_at, worth) - now) / SECOND
                    self._ready_at = asyncio.get_running_loop().time() + max(wait, 0.0)
                    self._version = None  # others may take or give back meanwhile
                    return None
                return _Grant(tokens, await self._write(rate.take(self._full_at, tokens, now)))
            except (Refused, Unavailable) as error:
                if attempt == TRIES and isinstance(error, Unavailable):
                    raise
                await self._rows.pause(attempt)
        return None

    async def _give_back(self, rate: StartRate, count: int, version: int) -> None:
        """Put tokens back into the bucket as the grant left it: then it is as if fewer had been taken."""
        if self._version == version:
            with suppress(BackendError):  # they are lost
                await self._write(rate.put_back(self._full_at, count))

    async def _look(self) -> None:
        if self._version is None:
            entity = await self._rows.entity(keys.rate(self._rows.queue))
            self._version = 0 if entity is None else entity.version
            self._full_at = 0 if entity is None else cast(int, entity.properties["full_at"])

    async def _write(self, full_at: int) -> int:
        """Write the bucket over the one that was read; return its version."""
        version = self._version or 0
        self._version = None
        entity = Entity(key=keys.rate(self._rows.queue), properties={"full_at": full_at})
        guarded = Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)
        (written,) = (await self._rows.commit([guarded if version else Insert(entity)])).versions
        self._version, self._full_at = written, full_at
        return written
