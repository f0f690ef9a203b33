"""Hands the items of groups that are due to their functions: one worker at a time for each function.

The items of a call are leased, and then exchanged for the call in one commit: all are finished and the call is in the
outbox, or neither. So an item is in one call, whoever dies or wakes up late, and no call is made twice.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from tally.clock import SECOND, Clock
from tally.errors import Busy, LeaseExpired, TallyError
from tally.logs import event
from tally.tasks import gather
from tally.tasks.deferred import Deferred, Registry
from tally.tasks.gather import Gather
from tally.tasks.lease import Lease
from tally.tasks.lock import Lock
from tally.tasks.outbox import Outbox
from tally.tasks.queue import PullQueue

LOCKS = "gatherers"  # the queue of the locks by which one worker at a time looks at the groups of a function
_HOLD = 30.0  # seconds for which a gatherer is the one; its leases last as long
_LAST_WORDS = 1.0  # seconds to give the locks back


class Gatherer:
    """`queue` makes a pull queue of one shard by its name."""

    def __init__(
        self, registry: Registry, queue: Callable[[str], PullQueue], outbox: Outbox, *, clock: Clock, random: Random
    ) -> None:
        self._registry = registry
        self._queue = queue
        self._outbox = outbox
        self._clock = clock
        self._random = random
        self._holds: dict[str, Lease] = {}
        self._locks: dict[str, Lock] = {}

    async def run(self) -> None:
        """Gather until cancelled. An outage is logged and waited out."""
        try:
            async with asyncio.TaskGroup() as group:
                for deferred, rule in self._functions():
                    group.create_task(self._keep_gathering(deferred, rule))
        finally:
            with suppress(TallyError, TimeoutError):
                async with asyncio.timeout(_LAST_WORDS):
                    for name, hold in self._holds.items():
                        await self._locks[name].release(hold)

    async def sweep(self) -> int:
        """Hand over what is due now; return how many calls were made."""
        return sum([await self._gather(deferred, rule) for deferred, rule in self._functions()])

    def queues(self) -> list[PullQueue]:
        """Return the queues in which items wait."""
        return [self._queue(gather.queue_name(deferred.name)) for deferred, _ in self._functions()]

    def _functions(self) -> list[tuple[Deferred[..., Any], Gather]]:
        found = [(each, each.options.gather) for each in self._registry.functions.values()]
        return [(deferred, rule) for deferred, rule in found if rule is not None]

    async def _keep_gathering(self, deferred: Deferred[..., Any], rule: Gather) -> None:
        while True:
            await asyncio.sleep(rule.check * (0.5 + self._random.random() / 2))
            try:
                if await self._is_ours(deferred.name):
                    await self._gather(deferred, rule)
                else:
                    await asyncio.sleep(_HOLD / 2)
            except TallyError as error:
                event("gather-failed", level=logging.WARNING, task=deferred.name, error=error)

    async def _is_ours(self, name: str) -> bool:
        """Take or keep the lock of a function. It only keeps the others from looking in vain: nothing relies on it."""
        if name not in self._locks:
            self._locks[name] = Lock(self._queue(LOCKS), gather.queue_name(name))
        hold = self._holds.get(name)
        if hold is not None and hold.expires_at > self._clock.now() + _HOLD * SECOND / 2:
            return True
        self._holds.pop(name, None)
        lock = self._locks[name]
        try:
            self._holds[name] = await lock.acquire(_HOLD) if hold is None else await lock.extend(hold, _HOLD)
        except (Busy, LeaseExpired):
            return False
        return True

    async def _gather(self, deferred: Deferred[..., Any], rule: Gather) -> int:
        queue = self._queue(gather.queue_name(deferred.name))
        made = 0
        for group in await queue.tags():
            while await self._is_due(queue, rule, group) and await self._hand_over(deferred, rule, queue, group):
                made += 1
        return made

    async def _is_due(self, queue: PullQueue, rule: Gather, group: str) -> bool:
        waiting = await queue.waiting(group, rule.max_size)
        if waiting is None:
            return False
        now = self._clock.now()
        return rule.is_full(waiting.count) or rule.is_due(oldest=waiting.oldest, newest=waiting.newest, now=now)

    async def _hand_over(self, deferred: Deferred[..., Any], rule: Gather, queue: PullQueue, group: str) -> bool:
        """Exchange items of a group for a call; False when others have them."""
        leases = await queue.lease(rule.max_size, seconds=_HOLD, tag=group)
        count = gather.fitting([lease.row for lease in leases])
        await queue.put_back(leases[count:])
        if not (leases := leases[:count]):
            return False
        items = [lease.task.payload for lease in leases]
        call = gather.call(deferred.name, deferred.codec.parameters, group, items, deferred.options.keep)
        entry = self._outbox.entry(deferred.options.queue, call)
        try:
            await queue.complete_with(leases, [entry.write])
        except LeaseExpired:
            return False
        event("gathered", task=deferred.name, items=count)
        await self._outbox.drain([entry.id])
        return True
