"""Is the store down, or only a partition of it? A partition that fails cannot tell, least of all when it is alone.

So once votes have failed to be committed for a while, and none has been, the worker tries the store itself, on a key
that nothing can poison: a lookup, an entity made, the entity deleted. Reads that succeed prove nothing, for the
permission to write may be gone; nor do deletes, which a disk that is full still takes.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random

from tally.errors import BackendError, Unavailable
from tally.logs import event
from tally.ports import Delete, Store, Upsert
from tally.votes import keys, ledger
from tally.votes.ledger import Shard

TRY_EVERY = 5.0  # seconds; a store that is down is tried with a message of votes as often (worker.py)
# Workers draw a key for each trial: they seldom meet, and those that die half-way leave no more than so many entities.
KEYS = 16


class StoreWatch:
    """`failing_since`: loop time of the first failure since a commit or a trial succeeded; None: there is none.

    `on_up` is called when a store that was down is up again.
    """

    def __init__(self, store: Store, random: Random) -> None:
        self.failing_since: float | None = None
        self.on_up: Callable[[], None] = lambda: None
        self._store = store
        self._random = random
        self._time = asyncio.get_running_loop().time
        self._up = asyncio.Event()
        self._up.set()
        self._failing = asyncio.Event()

    @property
    def down(self) -> bool:
        return not self._up.is_set()

    def failed(self, error: BackendError) -> None:
        """Note that a partition's commit or read, or that of a definition, has failed; only outages count."""
        if isinstance(error, Unavailable) and self.failing_since is None:
            self.failing_since = self._time()
            self._failing.set()

    def succeeded(self) -> None:
        """Note that a commit was taken."""
        self.failing_since = None
        self._failing.clear()
        if self.down:
            event("store-up")
            self._up.set()
            self.on_up()

    async def until_up(self, seconds: float) -> None:
        """Wait until the store is up, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._up.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Try the store while calls fail, until cancelled."""
        while True:
            await self._failing.wait()
            await asyncio.sleep(TRY_EVERY)
            if self.failing_since is not None and self._time() - self.failing_since >= TRY_EVERY:
                await self._try()

    async def _try(self) -> None:
        # No poll's: outside the alphabet of poll ids.
        key = keys.shard("~alive", self._random.randrange(KEYS))
        try:
            await self._store.get([key])
            await self._store.commit([Upsert(ledger.shard_entity(key, Shard()))])
            await self._store.commit([Delete(key=key)])
        except Unavailable as error:
            if self.failing_since is not None:  # no commit was taken meanwhile
                if not self.down:
                    event("store-down", level=logging.ERROR, status=error.status, reason=error.message)
                self._up.clear()
            return
        except BackendError:
            pass  # refused, by a store that answers: two workers drew one key
        self.succeeded()
