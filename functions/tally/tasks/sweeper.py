"""What a worker does beside its work: adds what committers left in the outbox, gathers, removes what is over.

Any number of workers may.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tally.errors import TallyError
from tally.logs import event
from tally.tasks.gatherer import Gatherer
from tally.tasks.outbox import Outbox
from tally.tasks.queue import PullQueue
from tally.tasks.runs import Runs

_OUTBOX_SECONDS = 5.0
_REMOVAL_SECONDS = 300.0


class Sweeper:
    """`random` keeps the sweepers of many workers apart."""

    def __init__(
        self, outbox: Outbox, runs: Runs, queues: Sequence[PullQueue], gatherer: Gatherer, *, random: Random
    ) -> None:
        self._outbox = outbox
        self._gatherer = gatherer
        self._runs = runs
        self._queues = tuple(queues)
        self._random = random

    async def run(self) -> None:
        """Sweep until cancelled. An outage is logged and waited out."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(_OUTBOX_SECONDS, "outbox", self._outbox.sweep))
            group.create_task(self._every(_REMOVAL_SECONDS, "runs", self._runs.sweep))
            group.create_task(self._gatherer.run())
            for queue in self._queues:
                group.create_task(self._every(_REMOVAL_SECONDS, f"queue {queue.name}", queue.sweep))

    async def _every(self, seconds: float, what: str, sweep: Callable[[], Awaitable[int]]) -> None:
        while True:
            await asyncio.sleep(seconds * (0.5 + self._random.random()))
            try:
                await sweep()
            except TallyError as error:
                event("sweep-failed", level=logging.WARNING, what=what, reason=error.message)
