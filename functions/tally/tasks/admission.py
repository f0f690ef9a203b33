"""Whether a call may start now, by the limit of its function; and when it shall ask again if it may not.

How long to wait follows from how it went here lately: refusals double the wait of a key, starts cut it to a quarter. So
a few tries bring a run to its start, however many wait, and no place stays free for long.
"""

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from tally import limits
from tally.clock import SECOND, Clock
from tally.errors import BackendError
from tally.logs import event
from tally.ports import Store
from tally.tasks.call import Call
from tally.tasks.codec import Undecodable
from tally.tasks.deferred import Registry
from tally.tasks.resolve import arguments, resolve
from tally.tasks.semaphore import TRUST, Semaphores

_BASE, _LONGEST = 0.5, 30.0  # seconds
_LEVELS = 6  # doublings from the one to the other
_LAST_WORDS = 2.0  # seconds to give a place back


class Patience:
    """How long the calls of each key wait for a place: a level a key, of the latest keys."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._levels: OrderedDict[str, int] = OrderedDict()

    def refused(self, key: str) -> float:
        """Return seconds to wait before the next try."""
        level = min(_LEVELS, self._levels.get(key, 0) + 1)
        self._set(key, level)
        return min(_LONGEST, _BASE * 2.0**level) * self._random.uniform(0.5, 1)

    def admitted(self, key: str) -> None:
        self._set(key, max(0, self._levels.get(key, 0) - 2))

    def _set(self, key: str, level: int) -> None:
        self._levels.pop(key, None)
        if level:
            self._levels[key] = level
        if len(self._levels) > limits.KEYS_HELD:
            self._levels.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """`key` of the place that is held, "" where the function has no limit; good until `until` (µs) without a claim."""

    key: str = ""
    token: str = ""
    until: int = 1 << 62


@dataclass(frozen=True, slots=True)
class Full:
    """All places are taken: ask again at `at` (µs)."""

    at: int


FREE = Admitted()


class Admission:
    def __init__(
        self, registry: Registry, store: Store, semaphores: Semaphores, *, clock: Clock, random: Random
    ) -> None:
        self._registry = registry
        self._store = store
        self._semaphores = semaphores
        self._clock = clock
        self._patience = Patience(random)

    async def enter(self, call: Call, run_id: str, token: str) -> Admitted | Full:
        """Take a place for the claim that comes next, if the function has a limit. Raises BackendError."""
        if not self._registry.limited:
            return FREE
        try:
            deferred, args, kwargs = resolve(self._registry, call, await arguments(self._store, call))
        except Undecodable:
            return FREE  # it will not run
        limit = deferred.options.limit
        if limit is None:
            return FREE
        key = limit.of(deferred.codec.complete(args, kwargs))
        place = await self._semaphores.enter(key, limit.limit, run_id, token)
        if place is None:
            delay = self._patience.refused(key)
            event("task-waits-for-place", task=deferred.name, run=run_id, in_s=round(delay, 1))
            return Full(self._clock.now() + round(delay * SECOND))
        self._patience.admitted(key)
        return Admitted(key=key, token=token, until=place.until - TRUST // 2)

    async def leave(self, admitted: Admitted | Full) -> None:
        """Give the place back; one that cannot be is free once its claim is over."""
        if isinstance(admitted, Full) or not admitted.key:
            return
        with suppress(TimeoutError):
            try:
                async with asyncio.timeout(_LAST_WORDS):
                    await self._semaphores.leave(admitted.key, admitted.token)
            except BackendError as error:
                event("place-not-given-back", level=logging.WARNING, error=error)
