"""One partition's lane through the worker: the votes that wait for it, and the task that commits them.

Commits follow each other, at most one in flight: a copy that arrives meanwhile waits. Contention is met by reading
again; an outage by back-off, then by parking: a parked lane holds little, lets its messages go after a minute, and
never stops another lane. Only what the store refuses for good is ever halved, and only a lone vote, refused while its
neighbours are not, becomes a dead letter.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tally.errors import BackendError, Refused, Rejected, TallyError, UnsafeStore
from tally.logs import event
from tally.retry import full_jitter
from tally.votes.counter import Counter, Purged
from tally.votes.ledger import SEGMENT_RECORDS, Full, NewerFormat
from tally.votes.poll import Poll
from tally.votes.records import Mask, Records, join

PERIOD = 1.0
LET_GO_AFTER = 60.0
FAILURES_TO_PARK = 5
# A shard takes about this many commits a second, from all workers together.
_COMMITS_PER_SECOND = 4
_BACKOFF_BASE, _BACKOFF_CAP = 0.2, 5.0
_PARK_BASE, _PARK_CAP = 5.0, 60.0
_CONTENTION_BASE, _CONTENTION_CAP = 0.1, 20.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Votes that wait, with the number of each one's message; `oldest`, `newest`: when they were pulled (loop time)."""

    records: Records
    owner: NDArray[np.intp]
    oldest: float
    newest: float

    def __len__(self) -> int:
        return len(self.owner)

    def rows(self, mask: Mask) -> "Waiting":
        return Waiting(self.records[mask], self.owner[mask], self.oldest, self.newest)


class Desk(Protocol):
    """What a lane asks of its worker."""

    def settle(self, owners: NDArray[np.intp]) -> None: ...

    def committed(self) -> None:
        """Hear that the store has taken a commit."""
        ...

    def failed(self, error: BackendError) -> None: ...

    def refuse(self, lane: "Lane", votes: Waiting, reason: str) -> None: ...

    def let_go(self, owners: NDArray[np.intp]) -> None: ...

    def parked_too_much(self) -> bool:
        """Tell whether the parked lanes hold more than their share of the bounds."""
        ...

    def still_held(self, owners: NDArray[np.intp]) -> Mask: ...

    async def may_insert(self, lane: "Lane", pulled_at: float) -> bool:
        """Read the definition if it was last read before `pulled_at`; tell whether a new shard may be made.

        Raises Replaced if it is another poll now than the lane's.
        """
        ...


class Replaced(Exception):
    """Another poll has the id: votes were judged by a definition that is gone."""


class Lane:
    def __init__(self, poll: Poll, partition: int, counter: Counter, desk: Desk, random: Random) -> None:
        self.poll = poll
        self.partition = partition
        self.counter = counter
        self.waiting: list[Waiting] = []
        self.failures = 0
        self.problem = ""
        self.flush = asyncio.Event()
        self._desk = desk
        self._random = random
        self._time: Callable[[], float] = asyncio.get_running_loop().time
        self._losses = 0
        self._limit = SEGMENT_RECORDS
        # Votes that were refused alone, and how far the ledger had come at the first read after that (None: not read).
        self._suspects: dict[tuple[int, int], int | None] = {}
        self._next_commit = 0.0
        self._pausing: asyncio.Timeout | None = None

    @property
    def parked(self) -> bool:
        return self.failures >= FAILURES_TO_PARK

    def add(self, votes: Waiting) -> None:
        self.waiting.append(votes)

    def hurry(self) -> None:
        """End a pause within some seconds, each lane at a moment of its own."""
        if self._pausing is not None and not self._pausing.expired():
            soon = self._time() + full_jitter(1, base=_PARK_BASE, cap=_PARK_CAP, random=self._random)
            self._pausing.reschedule(min(soon, self._pausing.when() or soon))

    async def run(self) -> None:
        """Commit until nothing waits; once the worker flushes, only as long as it succeeds. Raises UnsafeStore."""
        while self.waiting and not (self.flush.is_set() and (self.failures or self._losses > 2)):
            await self._pause(self._next_commit - self._time())
            period = max(PERIOD, (self.counter.rivals + 1) / _COMMITS_PER_SECOND)
            self._next_commit = self._time() + period
            batch = self._batch()
            try:
                await self._commit(batch)
            except Refused:
                self._losses += 1
                self._next_commit = self._time()
                if self._losses > 1:
                    await self._back_off(self._losses - 1, _CONTENTION_BASE, _CONTENTION_CAP)
            except Rejected as error:
                await self._rejected(batch, error)
            except Purged:
                await self._purged(batch)
            except Replaced:
                self._replaced()
            except UnsafeStore:
                raise
            except (Full, NewerFormat) as error:
                self.failures = max(self.failures, FAILURES_TO_PARK - 1)
                await self._failed(error)
            except TallyError as error:
                await self._failed(error)

    async def _commit(self, batch: Waiting) -> None:
        await self.counter.refresh()
        for ballot, sequence in self._suspects.items():
            self._suspects[ballot] = self.counter.sequence if sequence is None else sequence
        if self.counter.is_new and not await self._desk.may_insert(self, batch.newest):
            self._remove(batch, np.ones(len(batch), np.bool_))
            self._desk.refuse(self, batch, "poll-deleted")
            return
        commits = self.counter.commits
        done = await self.counter.commit(batch.records)
        if self.counter.commits > commits:  # else copies, which prove nothing of the store
            self._desk.committed()
        self._remove(batch, done)
        self._clear(batch.records[done])
        self._desk.settle(batch.owner[done])
        self._losses = self.failures = 0
        self._limit = min(self._limit * 2, SEGMENT_RECORDS)
        self.problem = ""

    def _batch(self) -> Waiting:
        """Take what waits as one; more of it than a commit can write is harmless, copies need no room."""
        joined = Waiting(
            join([part.records for part in self.waiting]),
            np.concatenate([part.owner for part in self.waiting]),
            min(part.oldest for part in self.waiting),
            max(part.newest for part in self.waiting),
        )
        self.waiting = [joined]
        return joined if self._limit == SEGMENT_RECORDS else joined.rows(_first(self._limit, len(joined)))

    def _remove(self, batch: Waiting, done: Mask) -> None:
        """Take the done rows of a batch, which leads the first part of what waits, out of it."""
        first, *later = self.waiting
        keep = np.ones(len(first), np.bool_)
        keep[: len(done)] = ~done
        rest = first.rows(keep)
        self.waiting = [rest, *later] if len(rest) else later

    async def _rejected(self, batch: Waiting, error: Rejected) -> None:
        """The store will never take this commit: read again, with half of it; a lone vote waits for its neighbours."""
        event("commit-rejected", level=logging.ERROR, poll=self.poll.id, partition=self.partition, reason=error.message)
        if len(batch) > 1:
            self._limit = (min(self._limit, len(batch)) + 1) // 2
            self._next_commit = self._time()
            return
        ballot = (int(batch.records.high[0]), int(batch.records.low[0]))
        row = _first(1, len(self.waiting[0]))
        refused_at = self._suspects.setdefault(ballot, None)
        if refused_at is not None and refused_at < self.counter.sequence:  # somebody's commit was taken since
            self._suspects.clear()
            self._remove(batch, np.ones(1, np.bool_))
            self._desk.refuse(self, batch, "store-rejected")
            return
        first, *later = self.waiting
        self.waiting = [part for part in (first.rows(~row), *later, first.rows(row)) if len(part)]
        await self._failed(error)

    def _clear(self, settled: Records) -> None:
        """Suspect no longer what the store took after all: it had refused the partition, not the vote."""
        if self._suspects:
            for ballot in zip(settled.high.tolist(), settled.low.tolist(), strict=True):
                self._suspects.pop(ballot, None)

    async def _purged(self, batch: Waiting) -> None:
        """The shard was deleted under us, with its poll: the votes are dead letters, and no new shard may be made."""
        self.counter.drop()
        try:
            may_insert = await self._desk.may_insert(self, self._time())
        except Replaced:
            self._replaced()
        except TallyError as error:
            await self._failed(error)
        else:
            if may_insert:
                await self._failed(Purged(f"the shard of {self.poll.id}:{self.partition} is gone but its poll is not"))
            else:
                self._remove(batch, np.ones(len(batch), np.bool_))
                self._desk.refuse(self, batch, "poll-deleted")

    def _replaced(self) -> None:
        """Let every vote come again, to be judged by the definition of the poll that has the id now."""
        event("poll-replaced", level=logging.ERROR, poll=self.poll.id, partition=self.partition)
        for part in self.waiting:
            self._desk.let_go(part.owner)
        self.waiting = []

    async def _failed(self, error: TallyError) -> None:
        self.failures += 1
        if isinstance(error, BackendError):
            self._desk.failed(error)
        self.problem = error.status if isinstance(error, BackendError) else error.code
        event(
            "lane-parked" if self.parked else "commit-failed",
            level=logging.ERROR if self.parked else logging.WARNING,
            poll=self.poll.id,
            partition=self.partition,
            failures=self.failures,
            problem=self.problem,
            reason=error.message,
        )
        self._let_old_go()
        if self.parked:
            await self._back_off(self.failures - FAILURES_TO_PARK + 1, _PARK_BASE, _PARK_CAP)
        else:
            await self._back_off(self.failures, _BACKOFF_BASE, _BACKOFF_CAP)

    def _let_old_go(self) -> None:
        """Give up messages that have waited for a minute, and votes whose message was given up elsewhere."""
        before = self._time() - LET_GO_AFTER
        too_much = self.parked and self._desk.parked_too_much()
        for part in self.waiting:
            if too_much or part.oldest < before:
                self._desk.let_go(part.owner)
        parts = [part.rows(self._desk.still_held(part.owner)) for part in self.waiting]
        self.waiting = [part for part in parts if len(part)]

    async def _back_off(self, attempt: int, base: float, cap: float) -> None:
        await self._pause(full_jitter(attempt, base=base, cap=cap, random=self._random))

    async def _pause(self, seconds: float) -> None:
        """Wait, or less if the worker flushes."""
        if seconds <= 0 or self.flush.is_set():
            return
        try:
            async with asyncio.timeout(seconds) as self._pausing:
                await self.flush.wait()
        except TimeoutError:
            pass
        finally:
            self._pausing = None


def _first(count: int, length: int) -> Mask:
    mask = np.zeros(length, np.bool_)
    mask[:count] = True
    return mask
