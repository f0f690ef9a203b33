"""All lanes of a worker: made on demand, run while votes wait, forgotten when memory is short."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tally import limits
from tally.clock import SECOND, Clock
from tally.errors import BackendError
from tally.logs import event
from tally.ports import Store
from tally.votes import ledger, verdict
from tally.votes.batch import Columns
from tally.votes.counter import Counter
from tally.votes.dead_letter import refused
from tally.votes.inbox import Inbox
from tally.votes.known_polls import KnownPolls
from tally.votes.lane import LET_GO_AFTER, Lane, Replaced, Waiting
from tally.votes.poll import Poll
from tally.votes.purge import PURGE_AFTER
from tally.votes.records import Mask, Records
from tally.votes.store_watch import StoreWatch

# From a day before a deleted poll's ledger may be purged on, its shards are no longer made.
_PURGEABLE_AFTER = PURGE_AFTER - 86_400 * SECOND
_THRASH_SECONDS = 60.0
# What a lane and its counter cost beside the records.
_LANE_BYTES = 4_096

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Lanes:
    """Is the lanes' desk: what they ask of the worker."""

    def __init__(
        self,
        store: Store,
        polls: KnownPolls,
        inbox: Inbox,
        watch: StoreWatch,
        *,
        clock: Clock,
        random: Random,
        spawn: Spawn,
        fold_from: int,
        memory: int = limits.CACHED_RECORD_BYTES,
    ) -> None:
        self.progress = 0
        self.settled_votes = 0
        self.thrashed_at = float("-inf")
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.running: dict[Lane, asyncio.Task[None]] = {}
        self._store = store
        self._polls = polls
        self._inbox = inbox
        self._watch = watch
        watch.on_up = self._hurry
        self._clock = clock
        self._random = random
        self._spawn = spawn
        self._fold_from = fold_from
        self._memory = memory
        self._loads = asyncio.Semaphore(limits.CONCURRENT_LOADS)
        self._evicted: dict[tuple[str, int], float] = {}
        self._time = asyncio.get_running_loop().time

    def add(self, poll: Poll, records: Records, owner: NDArray[np.intp], pulled_at: float) -> None:
        """Hand votes that count to the lanes of their partitions."""
        if poll.partitions == 1:
            self._add(poll, 0, Waiting(records, owner, pulled_at, pulled_at))
            return
        partition = verdict.partitions(records, poll.partitions)
        order = np.argsort(partition, kind="stable")
        bounds = np.searchsorted(partition[order], np.arange(poll.partitions + 1)).tolist()
        for number in range(poll.partitions):
            rows = order[bounds[number] : bounds[number + 1]]
            if len(rows):
                self._add(poll, number, Waiting(records[rows], owner[rows], pulled_at, pulled_at))

    def _add(self, poll: Poll, partition: int, votes: Waiting) -> None:
        lane = self._lane(poll, partition)
        lane.add(votes)
        if lane.parked and self.parked_too_much():
            lane.waiting.pop()
            self.let_go(votes.owner)
        elif lane not in self.running:
            self.running[lane] = self._spawn(self._run(lane))

    async def _run(self, lane: Lane) -> None:
        try:
            await lane.run()
        finally:
            del self.running[lane]

    def _lane(self, poll: Poll, partition: int) -> Lane:
        key = (poll.id, partition)
        lane = self.lanes.pop(key, None)
        if lane is None or (poll is not lane.poll and not poll.continues(lane.poll)):
            if self._time() - self._evicted.pop(key, float("-inf")) < _THRASH_SECONDS:
                self.thrashed_at = self._time()
            counter = Counter(
                self._store,
                poll.id,
                partition,
                poll.revote,
                loads=self._loads,
                fold_from=ledger.folds_from(self._fold_from, partition),
            )
            lane = Lane(poll, partition, counter, self, self._random)
        elif len(poll.options) > len(lane.poll.options):
            lane.poll = poll  # its records name options by their numbers, which never change
        self.lanes[key] = lane  # last: the order of the dict is that of use
        return lane

    def flush(self) -> None:
        """Let every lane commit now what it has, without pauses."""
        for lane in self._all():
            lane.flush.set()

    def _hurry(self) -> None:
        """Let parked lanes, whose pauses may be a minute long, try a store that is up again."""
        for lane in self.parked():
            lane.hurry()

    def housekeep(self) -> None:
        """Once a second: drop what is least recently used beyond the memory bound."""
        now = self._time()
        used = sum(lane.counter.nbytes + _LANE_BYTES for lane in self.lanes.values())
        for key, lane in list(self.lanes.items()):
            if used <= self._memory:
                break
            if lane in self.running:
                continue
            del self.lanes[key]
            self._evicted[key] = now
            used -= lane.counter.nbytes + _LANE_BYTES
            event("partition-evicted", poll=lane.poll.id, partition=lane.partition, ballots=lane.counter.ballots)
        self._evicted = {key: at for key, at in self._evicted.items() if now - at < _THRASH_SECONDS}

    def parked(self) -> list[Lane]:
        return [lane for lane in self._all() if lane.parked]

    def _all(self) -> Iterable[Lane]:
        """Return also those that end as their polls were replaced: in `lanes` others have their places."""
        return dict.fromkeys((*self.lanes.values(), *self.running))

    # The desk.

    def settle(self, owners: NDArray[np.intp]) -> None:
        self.progress += 1
        self.settled_votes += len(owners)
        self._inbox.settle(owners)

    def committed(self) -> None:
        self._watch.succeeded()

    def failed(self, error: BackendError) -> None:
        self._watch.failed(error)

    def refuse(self, lane: Lane, votes: Waiting, reason: str) -> None:
        options = tuple(option.id for option in lane.poll.options)
        records = votes.records
        self.dead_letter(
            Columns(
                lane.poll.id, options, records.high, records.low, records.options, records.accepted_at, votes.owner
            ),
            reason,
        )

    def dead_letter(self, columns: Columns, reason: str) -> None:
        """Settle refused votes by dead letters, one a message; `owner` numbers the inbox's messages."""
        event("votes-refused", poll=columns.poll, reason=reason, votes=len(columns))
        order = np.argsort(columns.owner, kind="stable")
        numbers, starts = np.unique(columns.owner[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            held = self._inbox.held.get(number)
            if held is not None:
                part = columns.rows(rows)
                letter = refused(held.message_id, held.published_at, reason, part.encode())
                self._inbox.refuse(number, len(part), letter)

    def let_go(self, owners: NDArray[np.intp]) -> None:
        self._inbox.let_go(np.unique(owners).tolist())

    def still_held(self, owners: NDArray[np.intp]) -> Mask:
        held = self._inbox.held
        return np.fromiter((number in held for number in owners.tolist()), np.bool_, len(owners))

    def parked_too_much(self) -> bool:
        return self._inbox.over_share(part.owner for lane in self.parked() for part in lane.waiting)

    async def may_insert(self, lane: Lane, pulled_at: float) -> bool:
        known = self._polls.held(lane.poll.id)
        # Votes that waited long, as in a frozen worker, may be for a poll that was deleted and purged meanwhile.
        if known is None or known.sent < max(pulled_at, self._time() - LET_GO_AFTER):
            known = await self._polls.read(lane.poll.id)
        if known.poll is not None and not known.poll.continues(lane.poll):
            raise Replaced
        return known.poll is not None and self._clock.now() < known.poll.deleted_at + _PURGEABLE_AFTER
