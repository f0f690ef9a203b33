"""One query over all shards of a queue, so that a lessee for which there is nothing need not ask each of them.

The index of what is due goes by shard, then ETA. As many of its rows as there are shards are all that a queue of fewer
has: of each shard they tell whether its first task is due. Of a fuller queue they tell it of the shards up to the last
one seen. So a glance and the queries of the shards that it leaves open are never more than one query a shard. It is a
read like each of those: what it has not seen yet the next one sees.
"""

import asyncio
from math import inf

from tally.tasks.rows import Rows

_BLIND = 30.0  # seconds without a glance after one that left shards open: it read rows for little


class Glance:
    """`idle` says that the last lease found nothing; else a glance would be one query more."""

    def __init__(self, rows: Rows) -> None:
        self.idle = False
        self._rows = rows
        self._blind_until = -inf

    async def at(self, shards: int) -> set[int]:
        """Return the shards, of so many, that may hold a task that is due. Raises Unavailable."""
        every = set(range(shards))
        time = asyncio.get_running_loop().time()
        if not self.idle or shards == 1 or time < self._blind_until:
            return every
        now = self._rows.clock.now()
        seen = await self._rows.head(shards)
        if seen is None:
            return every
        beyond = set(range(seen[-1].shard + 1, shards)) if len(seen) == shards else set[int]()
        if beyond:
            self._blind_until = time + _BLIND
        return {row.shard for row in seen if row.eta <= now} | beyond
