"""Results: the sum of a poll's shards, read by key. They trail the votes by about a second.

A thousand people who watch one poll cost as much as one: requests share a read that was sent less than SHARED_SECONDS
before they came. It is one at a time for each poll, so that no answer of a process is older than the one before it, and
its totals never fall. Another process has reads of its own: who asks several sees by `as_of` which answer is older.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tally import ports
from tally.clock import Clock
from tally.errors import Busy
from tally.limits import LOOKUP_BYTES, LOOKUP_KEYS, SHARD_BYTES
from tally.ports import Entity
from tally.votes import keys, ledger
from tally.votes.definitions import Definitions
from tally.votes.poll import Poll

SHARED_SECONDS = 0.5
_COUNT_BYTES = 12  # of one option in a shard, at most
_REST_BYTES = 32_000  # of a shard beside its counts: the list of segments


class Results(NamedTuple):
    """`counts` by option number; None while the poll hides them. `as_of` in µs."""

    poll: Poll
    counts: tuple[int, ...] | None
    as_of: int


class _Read(NamedTuple):
    """A read of a poll's shards, on its way or done; `sent`: the loop's seconds."""

    sent: float
    task: "asyncio.Task[Results]"

    def serves(self, asked: float) -> bool:
        """Tell whether it may answer a request of that time: it is on its way, or young and did not fail."""
        if not self.task.done():
            return True
        return asked - self.sent < SHARED_SECONDS and not self.task.cancelled() and self.task.exception() is None


class ResultsReader:
    """For one event loop."""

    def __init__(self, store: ports.Store, definitions: Definitions, clock: Clock) -> None:
        self._store = store
        self._definitions = definitions
        self._clock = clock
        self._time = asyncio.get_running_loop().time
        self._reads: dict[str, _Read] = {}

    async def read(self, poll_id: str) -> Results:
        """Return the results as of less than SHARED_SECONDS ago; raise NotFound, Busy, Unavailable."""
        now, asked = self._clock.now(), self._time()
        definition = await self._definitions.get(poll_id, now)
        if hidden(definition.poll, definition.sent_at):
            return Results(definition.poll, None, now)
        while True:
            read = self._shared(definition.poll)
            results = await asyncio.shield(read.task)
            if asked - read.sent < SHARED_SECONDS:
                return results

    def _shared(self, poll: Poll) -> _Read:
        """Return a read that others may wait for too; a new one if there is none, or only an old one."""
        now = self._time()
        read = self._reads.get(poll.id)
        if read is None or not read.serves(now):
            self._forget(now)
            read = self._reads[poll.id] = _Read(now, asyncio.create_task(self.count(poll)))
            read.task.add_done_callback(_look_at)
        return read

    def _forget(self, now: float) -> None:
        """Drop the reads that serve nobody any more: what is kept are those of half a second."""
        for poll_id in [poll_id for poll_id, read in self._reads.items() if not read.serves(now)]:
            del self._reads[poll_id]

    async def count(self, poll: Poll) -> Results:
        """Sum the shards of a poll, whatever it hides; raise Busy, Unavailable."""
        now = self._clock.now()
        shards = [keys.shard(poll.id, partition) for partition in range(poll.partitions)]
        size = lookup_size(len(poll.options))
        chunks = [shards[start : start + size] for start in range(0, len(shards), size)]
        answers = await asyncio.gather(*[ports.read(self._store, chunk) for chunk in chunks])
        entities = [entity for found, _ in answers for entity in found.values()]
        read_times = [now if read_time is None else read_time for _, read_time in answers]
        try:
            counts = total(entities, len(poll.options))
        except ledger.NewerFormat as error:  # workers are upgraded before functions
            raise Busy("a later version of Tally counts this poll", retry_after=5, code="format") from error
        return Results(poll, counts, min(read_times))


def _look_at(task: "asyncio.Task[Results]") -> None:
    """Take note of a failure: whoever waits for it gets it, and nobody may be left to."""
    if not task.cancelled():
        task.exception()


def hidden(poll: Poll, sent_at: int) -> bool:
    """Say whether a definition read at `sent_at` hides the counts: read before the end, it may not know a later one."""
    return poll.results == "after-close" and sent_at < poll.ends_at


def lookup_size(options: int) -> int:
    """Return how many shards of a poll one lookup may ask for, by the worst case of their sizes."""
    worst = min(SHARD_BYTES, options * _COUNT_BYTES + _REST_BYTES)
    return min(LOOKUP_KEYS, max(1, LOOKUP_BYTES // worst))


def total(shards: Sequence[Entity], options: int) -> tuple[int, ...]:
    """Add the counts of shards; one may be shorter than `options`, or longer than an old definition knows."""
    sums = [0] * options
    for shard in shards:
        for number, count in enumerate(ledger.parse_shard(shard).counts[:options]):
            sums[number] += count
    return tuple(sums)
