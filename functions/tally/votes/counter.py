"""Counts the votes of one partition into its ledger: load, catch up, commit. One commit is in flight at a time.

Whatever becomes of a commit, what is held stays a true prefix of the ledger. So a refusal, contention and an unknown
outcome take one path: the next `refresh` reads the shard and the segments above the own sequence and takes them in.

Only a store that goes back behind what it confirmed (restored, or an emulator without its data) breaks that. What is
held then agrees with no ledger: it is Purged.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from tally.errors import TallyError, UnsafeStore
from tally.logs import event
from tally.ports import Entity, Key, Store, read
from tally.votes import keys, ledger
from tally.votes.ledger import Corrupt, Partition, Segment
from tally.votes.poll import Revote
from tally.votes.records import Mask, Records, absorb, merge

# Segments that another worker may have written since: their keys can be guessed, so one lookup brings all.
_GUESSES = 8
# A commit proves that the store still has what is held. Copies make none, and are settled for so long without a look.
_PROVEN_SECONDS = 2.0


class Purged(TallyError):
    """The shard held is gone: the poll's ledger was purged, or the store went back and has none, or another."""

    code = "purged"


class Counter:
    """One partition of a poll. Not reentrant: `refresh`, then `commit`, by one task."""

    def __init__(
        self, store: Store, poll_id: str, partition: int, revote: Revote, *, loads: asyncio.Semaphore, fold_from: int
    ) -> None:
        self.key: Key = keys.shard(poll_id, partition)
        self.rivals = 0
        self.commits = 0
        self._store = store
        self._revote: Revote = revote
        self._loads = loads
        self._fold_from = fold_from
        self._held: Partition | None = None
        self._behind = False
        self._own_sequence = 0
        self._time: Callable[[], float] = asyncio.get_running_loop().time
        self._proven_at = 0.0

    @property
    def nbytes(self) -> int:
        return self._held.nbytes if self._held else 0

    @property
    def sequence(self) -> int:
        """How many commits the ledger has had, anybody's, as far as is known."""
        return self._held.shard.sequence if self._held else 0

    @property
    def ballots(self) -> int:
        return self._held.shard.ballots if self._held else 0

    @property
    def is_new(self) -> bool:
        """Whether the next commit inserts the shard, as of the last refresh."""
        return self._held is None or self._held.version == 0

    def drop(self) -> None:
        """Forget what is held; only while no votes wait."""
        self._held = None

    async def refresh(self) -> None:
        """Bring what is held up to date where that may be needed: first use, lost commit, rival workers.

        Raises Unavailable (nothing changed), Purged, NewerFormat, Corrupt.
        """
        if self._held is None:
            async with self._loads:
                self._held = await self._read(Partition())
            self._own_sequence = self._held.shard.sequence
        elif self._behind or self.rivals:
            self._held = await self._read(self._held)
            self.rivals = self._held.shard.sequence - self._own_sequence
        self._behind = False

    async def commit(self, records: Records) -> Mask:
        """Write what one commit takes of the records; return which of them are settled now.

        Raises Refused, Unavailable (the outcome is unknown), Rejected, Full, and UnsafeStore if the guard did not hold.
        """
        held = self._held
        assert held is not None, "refresh first"
        done = ledger.settled(held, records, self._revote)
        if done.all():
            return done if self._time() - self._proven_at < _PROVEN_SECONDS else await self._prove(held, records)
        plan = ledger.plan(held, records[~done], self._revote, fold_from=self._fold_from)
        writes = plan.writes(self.key, held.version)
        self._behind = True
        sent = self._time()
        answer = await self._store.commit(writes)
        if answer.conflict_detected:
            raise UnsafeStore(f"the store reports a conflict on {self.key} and answered OK: its version guard is off")
        self._held = plan.after(held, answer.versions[0], self._revote)
        self._behind = False
        self._own_sequence = plan.shard.sequence
        self._proven_at = sent
        self.commits += 1
        return ledger.settled(self._held, records, self._revote)

    async def _prove(self, held: Partition, copies: Records) -> Mask:
        """Return which copies of what is held the store has indeed."""
        self._held = await self._read(held)
        return ledger.settled(self._held, copies, self._revote)

    async def _read(self, held: Partition) -> Partition:
        """Return the partition as of a shard read now, every live segment above the held sequence taken in."""
        start, sent = held.shard.sequence, self._time()
        guesses = [keys.segment(self.key, start + ahead) for ahead in range(1, _GUESSES + 1)] if start else []
        found, _ = await read(self._store, [self.key, *guesses])
        runs, taken = held.runs, set[int]()
        while entity := found.get(self.key):
            shard = ledger.parse_shard(entity)
            if start and not ledger.continues(held.shard, shard):
                event("ledger-went-back", level=logging.CRITICAL, shard=str(self.key[0][1]), sequence=start)
                raise Purged(f"shard {self.key} is no continuation of the one held, of sequence {start}")
            wanted = [segment for segment in shard.segments if segment.sequence > start]
            missing = False
            for part in ledger.lookups([segment for segment in wanted if segment.sequence not in taken]):
                for sequence, segment in (await self._segments(part, found)).items():
                    runs = absorb(runs, ledger.parse_segment(segment), sequence, self._revote)
                    taken.add(sequence)
                missing = missing or any(segment.sequence not in taken for segment in part)
            if not missing:
                if start == 0:
                    runs = merge(runs)
                    _check(entity, shard, sum(map(len, runs)))
                self._proven_at = sent  # not before: a read that fails proves nothing
                return Partition(version=entity.version, shard=shard, runs=runs)
            # A listed segment is missing: the shard has moved (a fold) since it was read.
            found, _ = await read(self._store, [self.key])
        if start:
            raise Purged(f"shard {self.key} is gone; sequence {start} was held")
        return held

    async def _segments(self, part: Sequence[Segment], found: dict[Key, Entity]) -> dict[int, Entity]:
        """Return those of the segments that exist, by sequence; `found` is what an earlier lookup brought."""
        wanted = {segment.sequence: keys.segment(self.key, segment.sequence) for segment in part}
        if absent := [key for key in wanted.values() if key not in found]:
            more, _ = await read(self._store, absent)
            found = {**found, **more}
        return {sequence: found[key] for sequence, key in wanted.items() if key in found}


def _check(entity: Entity, shard: ledger.Shard, ballots: int) -> None:
    if ballots != shard.ballots or ballots != sum(segment.live for segment in shard.segments):
        raise Corrupt(f"shard {entity.key} says {shard.ballots} ballots, its segments hold {ballots}")
