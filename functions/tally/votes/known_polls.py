"""The worker's definitions. One held, however old, may accept votes; before a vote is refused it is read again."""

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple

from tally import limits
from tally.errors import BackendError, TallyError
from tally.ports import Store, read
from tally.votes import keys
from tally.votes.poll import Poll
from tally.votes.polls import from_entity

# Also keeps hostile ids away from the store: it would refuse the whole lookup for one key that it does not take.
_POLL_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_READ_POLLS = 10


class Known(NamedTuple):
    """`poll` None: there is no such poll. `sent`: the event loop's time at which the read was sent."""

    poll: Poll | None
    sent: float


def _ignore(_: BackendError) -> None:
    """Tell nobody."""


class KnownPolls:
    """`failed` is told of reads that fail."""

    def __init__(self, store: Store, failed: Callable[[BackendError], None] = _ignore) -> None:
        self._store = store
        self._failed = failed
        self._known: dict[str, Known] = {}
        self._waiting: dict[str, asyncio.Future[Known]] = {}
        self._reader: asyncio.Task[None] | None = None

    def held(self, poll_id: str) -> Known | None:
        return self._known.get(poll_id)

    async def read(self, poll_id: str) -> Known:
        """Read a definition anew, by a read sent after this call; callers share lookups. Raises as the store does."""
        loop = asyncio.get_running_loop()
        if not _POLL_ID.fullmatch(poll_id):
            return Known(None, loop.time())
        future = self._waiting.get(poll_id)
        if future is None:
            future = self._waiting[poll_id] = loop.create_future()
            if self._reader is None or self._reader.done():
                self._reader = loop.create_task(self._read_waiting())
        return await asyncio.shield(future)

    async def _read_waiting(self) -> None:
        while self._waiting:
            futures = {poll_id: self._waiting.pop(poll_id) for poll_id in list(self._waiting)[:_READ_POLLS]}
            sent = asyncio.get_running_loop().time()
            try:
                found, _ = await read(self._store, [keys.poll(poll_id) for poll_id in futures])
            except BackendError as error:
                self._failed(error)
                for future in futures.values():
                    future.set_exception(error)
                    future.exception()  # whoever waits gets it; nobody may be left to
                continue
            for poll_id, future in futures.items():
                entity = found.get(keys.poll(poll_id))
                try:
                    known = Known(from_entity(entity) if entity else None, sent)
                except TallyError as error:
                    future.set_exception(error)
                    future.exception()
                    continue
                self._remember(poll_id, known)
                future.set_result(known)

    def _remember(self, poll_id: str, known: Known) -> None:
        self._known.pop(poll_id, None)
        self._known[poll_id] = known
        while len(self._known) > limits.CACHED_POLLS:
            del self._known[next(iter(self._known))]
