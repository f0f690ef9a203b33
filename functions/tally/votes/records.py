"""The ledger's records as numpy columns, and the algebra on them. Pure.

A record says: this ballot chose this option at this instant. Ballot ids are two unsigned 64-bit words, big-endian
(`high`, `low`); instant and option number are one word, the `rank`: accepted_at · 1024 + option number. Of a ballot's
copies `keep` takes the least rank and `replace` the greatest: a function of the set of copies, not of their order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tally.votes.poll import Revote

Words: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]
Word = TypeVar("Word", bound=np.generic)

OPTION_BITS = 10
INSTANT_LIMIT = 1 << 54
RECORD_BYTES = 24
_WIRE = np.dtype([("high", ">u8"), ("low", ">u8"), ("rank", ">u8")])
# A run is merged into the next older one when that is at most this many times larger: few runs, cheap merges.
_RUN_RATIO = 4
# Rows that are merged at a time: more need more memory, fewer more time.
_MERGE_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of equal length, in any order."""

    high: Words
    low: Words
    rank: Words

    def __len__(self) -> int:
        return len(self.rank)

    def __getitem__(self, rows: "Mask | NDArray[np.intp] | slice") -> "Records":
        return Records(self.high[rows], self.low[rows], self.rank[rows])

    @property
    def accepted_at(self) -> Words:
        return self.rank >> np.uint64(OPTION_BITS)

    @property
    def options(self) -> NDArray[np.intp]:
        return (self.rank & np.uint64((1 << OPTION_BITS) - 1)).astype(np.intp)


@dataclass(frozen=True, slots=True)
class Run:
    """Records sorted by ballot, one a ballot, each with the segment that holds it."""

    records: Records
    segment: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.segment)

    @property
    def nbytes(self) -> int:
        return len(self) * (RECORD_BYTES + 4)


EMPTY = Records(*(np.empty(0, np.uint64) for _ in range(3)))


def ranks(accepted_at: Words, options: NDArray[np.integer]) -> Words:
    """Combine instants (µs, below INSTANT_LIMIT) and option numbers (below 1024) into ranks."""
    return (accepted_at << np.uint64(OPTION_BITS)) | options.astype(np.uint64)


def join(parts: Sequence[Records]) -> Records:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return EMPTY
    return Records(
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.rank for part in parts]),
    )


def beats(rank: Words, held: Words, revote: Revote) -> Mask:
    """Tell which ranks take the place of the held ones."""
    return rank < held if revote == "keep" else rank > held


def best(records: Records, revote: Revote) -> Records:
    """Return the live record of each ballot, sorted by ballot."""
    ordered = records[np.lexsort((records.rank, records.low, records.high))]
    changes = (ordered.high[1:] != ordered.high[:-1]) | (ordered.low[1:] != ordered.low[:-1])
    if np.count_nonzero(changes) == len(changes):  # no copies, as mostly
        return ordered
    edge = np.ones(1, np.bool_)
    return ordered[np.concatenate((edge, changes) if revote == "keep" else (changes, edge))]


def pack(records: Records) -> bytes:
    """Return RECORD_BYTES a record: ballot id and rank, big-endian."""
    wire = np.empty(len(records), _WIRE)
    wire["high"], wire["low"], wire["rank"] = records.high, records.low, records.rank
    return wire.tobytes()


def unpack(data: bytes) -> Records:
    """Return the records of `pack`; raises ValueError if the length is no multiple of RECORD_BYTES."""
    wire = np.frombuffer(data, _WIRE)
    return Records(wire["high"].astype(np.uint64), wire["low"].astype(np.uint64), wire["rank"].astype(np.uint64))


def locate(run: Run, records: Records) -> NDArray[np.intp]:
    """Return each record's place in the run, by ballot; -1 where the run has no such ballot."""
    return _located(run, records, run.records.high.searchsorted(records.high))


def _located(run: Run, records: Records, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Do so, given where each record's first word would go."""
    high, low = run.records.high, run.records.low
    if not len(high):
        return np.full(len(records), -1, np.intp)
    place = np.minimum(at, len(high) - 1)
    same_high = high[place] == records.high
    if not same_high.any():  # most votes are new
        return np.full(len(records), -1, np.intp)
    found = same_high & (low[place] == records.low)
    # Two ballots that share their first 64 bits: by chance never, but a publisher on the topic may send them.
    for row in (same_high & ~found).nonzero()[0]:
        for candidate in range(place[row], len(high)):
            if high[candidate] != records.high[row]:
                break
            if low[candidate] == records.low[row]:
                place[row], found[row] = candidate, True
                break
    return np.where(found, place, -1)


def find(runs: Iterable[Run], records: Records) -> tuple[Mask, Words, NDArray[np.uint32]]:
    """Return for each record whether its ballot is held, and the held rank and segment (0 where it is not).

    `runs` go from old to new; a newer run's record stands for the ballot.
    """
    held = np.zeros(len(records), np.bool_)
    rank = np.zeros(len(records), np.uint64)
    segment = np.zeros(len(records), np.uint32)
    for run in runs:
        place = locate(run, records)
        rows = (place >= 0).nonzero()[0]
        if len(rows):
            place = place[rows]
            held[rows] = True
            rank[rows] = run.records.rank[place]
            segment[rows] = run.segment[place]
    return held, rank, segment


def absorb(runs: tuple[Run, ...], records: Records, segment: int, revote: Revote) -> tuple[Run, ...]:
    """Take in the records of a committed segment: what load, catch-up and an own commit have in common.

    A record that the held one beats is dropped; an equal one replaces it, since the newer segment now holds it.
    """
    records = best(records, revote)
    held, rank, _ = find(runs, records)
    if np.count_nonzero(held):
        records = records[~(held & beats(rank, records.rank, revote))]
    if not len(records):
        return runs
    runs = (*runs, Run(records, np.full(len(records), segment, np.uint32)))
    first, size = len(runs) - 1, len(records)
    while first and len(runs[first - 1]) <= _RUN_RATIO * size:
        first -= 1
        size += len(runs[first])
    return (*runs[:first], *merge(runs[first:]))


def merge(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return the same live records as at most one run.

    Block by block, all runs at once: the peak of memory is little more than the runs given and the one returned.
    """
    rows = sum(map(len, runs))
    if rows < 2 * _MERGE_BLOCK:
        return (reduce(_merge, reversed(runs)),) if runs else ()
    if len(runs) == 1:
        return runs
    merged = Run(Records(*(np.empty(rows, np.uint64) for _ in range(3))), np.empty(rows, np.uint32))
    size = 0
    for block in _blocks(runs, rows // _MERGE_BLOCK):
        part = reduce(_merge, reversed(block))
        for column, of_part in zip(_columns(merged), _columns(part), strict=True):
            column[size : size + len(part)] = of_part
        size += len(part)
    for column in _columns(merged):
        column.resize(size, refcheck=False)
    return (merged,)


def live(runs: tuple[Run, ...], segments: Iterable[int]) -> Records:
    """Return the live records that the given segments hold."""
    wanted = np.fromiter(segments, np.uint32)
    rows = [(run, np.isin(run.segment, wanted)) for run in runs]
    candidates = join([run.records[mask] for run, mask in rows])
    origin = np.concatenate([run.segment[mask] for run, mask in rows]) if rows else np.empty(0, np.uint32)
    _, _, segment = find(runs, candidates)
    return candidates[segment == origin]


def _columns(run: Run) -> tuple[NDArray[Any], ...]:
    return run.records.high, run.records.low, run.records.rank, run.segment


def _blocks(runs: Sequence[Run], count: int) -> Iterator[list[Run]]:
    """Cut runs into blocks, all at the same ballots; yield each block's part of every run."""
    longest = max(runs, key=len).records.high
    edges = longest[[len(longest) * block // count for block in range(1, count)]]
    bounds = [[0, *run.records.high.searchsorted(edges).tolist(), len(run)] for run in runs]
    for block in range(count):
        cuts = [slice(bound[block], bound[block + 1]) for bound in bounds]
        yield [Run(run.records[cut], run.segment[cut]) for run, cut in zip(runs, cuts, strict=True)]


def _merge(new: Run, old: Run) -> Run:
    """Merge two runs; where both hold a ballot the new one stands."""
    if not len(old) or not len(new):
        return old if len(old) else new
    at = old.records.high.searchsorted(new.records.high)
    place = _located(old, new.records, at)
    superseded = place[place >= 0]
    rest = np.ones(len(old), np.bool_)
    rest[superseded] = False
    same_high = old.records.high[np.minimum(at, len(old) - 1)] == new.records.high
    if np.count_nonzero(same_high) > np.count_nonzero(place == at):
        # Different ballots that share their first 64 bits: insertion by the first word would not keep the order.
        return _sort(join([old.records[rest], new.records]), np.concatenate([old.segment[rest], new.segment]))
    at += np.arange(len(new)) - superseded.searchsorted(at)
    from_old = np.ones(len(old) - len(superseded) + len(new), np.bool_)
    from_old[at] = False

    def column(old_column: NDArray[Word], new_column: NDArray[Word]) -> NDArray[Word]:
        merged = np.empty(len(from_old), old_column.dtype)
        merged[from_old] = old_column[rest] if len(superseded) else old_column
        merged[at] = new_column
        return merged

    return Run(
        Records(
            column(old.records.high, new.records.high),
            column(old.records.low, new.records.low),
            column(old.records.rank, new.records.rank),
        ),
        column(old.segment, new.segment),
    )


def _sort(records: Records, segment: NDArray[np.uint32]) -> Run:
    order = np.lexsort((records.low, records.high))
    return Run(records[order], segment[order])
