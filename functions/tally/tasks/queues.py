"""The pull queues of a store: each by its name, and their names.

A queue is there from its first task, pause or rate on, and for ever. Only adding, pausing and setting a rate make one;
who looks at a queue, or changes what is in it, asks for one that is there, lest a wrong name look like an empty queue.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import NamedTuple

from tally import limits
from tally.clock import Clock
from tally.errors import InvalidInput, NotFound, Rejected
from tally.ports import Query, Store
from tally.tasks import keys
from tally.tasks.queue import PullQueue


class Names(NamedTuple):
    """Names of queues; `cursor` None: there are no more."""

    names: Sequence[str]
    cursor: bytes | None


class PullQueues:
    """The pull queues of a store by name, each made once."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._made: OrderedDict[str, PullQueue] = OrderedDict()

    async def names(self) -> AsyncIterator[str]:
        """Give the names of all queues that were ever added to, paused or given a rate, in order."""
        cursor: bytes | None = None
        while True:
            page = await self.page(limits.QUEUES_PER_PAGE, cursor)
            for name in page.names:
                yield name
            if (cursor := page.cursor) is None:
                return

    async def page(self, limit: int, cursor: bytes | None) -> Names:
        """Give up to `limit` names of queues; `cursor` goes on. Raises InvalidInput for a cursor of others."""
        try:
            page = await self._store.query(Query(kind=keys.QUEUE, limit=limit, cursor=cursor))
        except Rejected as error:
            raise InvalidInput("the cursor is none that was given out", code="bad-cursor") from error
        return Names(names=[str(entity.key[-1][1]) for entity in page.entities], cursor=page.cursor)

    async def existing(self, name: str) -> PullQueue:
        """Return a queue that is there. Raises NotFound, or InvalidInput for what is no queue's name."""
        queue = self(name)
        if not await queue.known():
            raise NotFound(
                f"there is no queue {name}: no task was ever added to it, nor was it paused or given a rate"
                " (`tally queue list` and GET /v1/queues show all there are; a push queue is one of TALLY_PUSH_QUEUES)",
                code="queue-not-found",
            )
        return queue

    def __call__(self, name: str) -> PullQueue:
        """Return the queue, there or not yet; raises InvalidInput for what is no queue's name."""
        queue = self._made.pop(name, None) or PullQueue(self._store, name, clock=self._clock, random=self._random)
        self._made[name] = queue
        if len(self._made) > limits.HELD_QUEUES:
            self._made.popitem(last=False)
        return queue
