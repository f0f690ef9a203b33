"""The ledger of one (poll, partition): a log of segments and the shard that sums them. Pure: values in, values out.

A worker holds a partition as one frozen value, replaced whole after a complete read or a committed write. `plan` says
what one commit writes; its guard is the shard's version. Folds take small segments into the new one from memory, which
is exact for the same reason as the commit itself: it is refused unless the store still has the version held.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from tally import limits
from tally.errors import Rejected, TallyError
from tally.ports import Delete, Entity, Insert, Key, OnConflict, Update, Write
from tally.votes import keys
from tally.votes.poll import Revote
from tally.votes.records import (
    RECORD_BYTES,
    Mask,
    Records,
    Run,
    absorb,
    beats,
    best,
    find,
    join,
    live,
    pack,
    unpack,
)

FORMAT = 1
SEGMENT_RECORDS = limits.SEGMENT_BYTES // RECORD_BYTES
_FULL = SEGMENT_RECORDS * 9 // 10
_ENTITY_OVERHEAD = 1_000


class NewerFormat(TallyError):
    """Written by a later version of Tally: leave that partition alone."""

    code = "newer-format"


class Corrupt(TallyError):
    """The entities of a ledger contradict each other."""

    code = "ledger-corrupt"


class Full(TallyError):
    """The partition takes no further ballots: it is parked, and its votes wait."""

    code = "partition-full"


@dataclass(frozen=True, slots=True)
class Segment:
    """A live segment as its shard lists it: `records` written, of which `live` are not superseded."""

    sequence: int
    records: int
    live: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The sums: `counts` by option number (a poll's later options may be missing at its end), `ballots` live.

    `born`, the least instant of the first commit, tells a ledger from one that was begun again; 0: not known.
    """

    born: int = 0
    sequence: int = 0
    ballots: int = 0
    counts: tuple[int, ...] = ()
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What a worker knows of a partition, a true prefix of its ledger. `version` 0: there is no shard yet."""

    version: int = 0
    shard: Shard = Shard()
    runs: tuple[Run, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit: the shard after it, the records of its segment, the sequences of the segments folded into it."""

    shard: Shard
    records: Records
    folded: tuple[int, ...]

    def writes(self, key: Key, base_version: int) -> list[Write]:
        """Return the writes, the shard's first. Raises Rejected for a size that the store would not take."""
        shard = shard_entity(key, self.shard)
        size = sum(len(str(value)) for value in shard.properties.values())
        if size > limits.SHARD_BYTES:
            raise Rejected(f"shard of {size} bytes is over the limit of {limits.SHARD_BYTES}", status="SHARD_SIZE")
        guarded: Write = (
            Update(entity=shard, base_version=base_version, on_conflict=OnConflict.FAIL)
            if base_version
            else Insert(shard)
        )
        segment = segment_entity(keys.segment(key, self.shard.sequence), self.records)
        return [guarded, Insert(segment), *(Delete(key=keys.segment(key, gone)) for gone in self.folded)]

    def after(self, held: Partition, version: int, revote: Revote) -> Partition:
        """Return the partition once the commit of this plan has got `version`."""
        runs = absorb(held.runs, self.records, self.shard.sequence, revote)
        return Partition(version=version, shard=self.shard, runs=runs)


def settled(held: Partition, records: Records, revote: Revote) -> Mask:
    """Tell which records need no write: the committed record of their ballot equals or beats them."""
    known, rank, _ = find(held.runs, records)
    return known & ~beats(records.rank, rank, revote)


def plan(held: Partition, records: Records, revote: Revote, *, fold_from: int = limits.FOLD_SEGMENTS // 2) -> Commit:
    """Plan one commit of records that are not settled; what does not fit is left for the next.

    Segments are folded once `fold_from` small ones fit into this one, or fewer that fill it. Raises Full.
    """
    fresh = best(records, revote)[:SEGMENT_RECORDS]
    known, rank, origin = find(held.runs, fresh)
    room = limits.BALLOTS_PER_PARTITION - held.shard.ballots
    if len(fresh) - np.count_nonzero(known) > room:
        fits = known | (np.cumsum(~known) <= room)
        if not fits.any():
            raise Full(f"the partition holds {held.shard.ballots} ballots, the limit is {limits.BALLOTS_PER_PARTITION}")
        fresh, known, rank, origin = fresh[fits], known[fits], rank[fits], origin[fits]
    old = Records(fresh.high[known], fresh.low[known], rank[known])
    segments = list(held.shard.segments)
    if len(old):
        lost = dict(zip(*(column.tolist() for column in np.unique(origin[known], return_counts=True)), strict=True))
        segments = [
            replace(segment, live=segment.live - lost[segment.sequence]) if segment.sequence in lost else segment
            for segment in segments
        ]
    folded = _fold(segments, SEGMENT_RECORDS - len(fresh), fold_from)
    sequence = held.shard.sequence + 1
    written = fresh
    if folded:
        moved = live(held.runs, folded)
        superseded, _, _ = find((Run(fresh, np.zeros(len(fresh), np.uint32)),), moved)
        written = join([fresh, moved[~superseded]])
        segments = [segment for segment in segments if segment.sequence not in folded]
    width = max(len(held.shard.counts), int(fresh.options.max(initial=-1)) + 1)
    counts = np.zeros(width, np.int64)
    counts[: len(held.shard.counts)] = held.shard.counts
    counts += np.bincount(fresh.options, minlength=width) - np.bincount(old.options, minlength=width)
    shard = Shard(
        born=held.shard.born if held.version else int(fresh.accepted_at.min()),
        sequence=sequence,
        ballots=held.shard.ballots + int(np.count_nonzero(~known)),
        counts=tuple(counts.tolist()),
        segments=(*segments, Segment(sequence, len(written), len(written))),
    )
    return Commit(shard=shard, records=written, folded=folded)


def continues(held: Shard, found: Shard) -> bool:
    """Tell whether a shard that was found may come after the one held; not so if the store went back meanwhile.

    Where another worker has gone on from there past the sequence held, the segments up to it tell: commits only take
    from their live records. By chance they may agree all the same.
    """
    if held.born and found.born and held.born != found.born:
        return False
    if found.sequence <= held.sequence:
        return found == held
    had = {segment.sequence: segment for segment in held.segments}
    common = [(had.get(now.sequence), now) for now in found.segments if now.sequence <= held.sequence]
    return all(was and was.records == now.records and was.live >= now.live for was, now in common)


def folds_from(fold_from: int, partition: int) -> int:
    """Return how many segments make a partition fold: in others some more, up to half as many again.

    The partitions of a poll begin together, and sixteen folds in one second delete 500 entities, which is all that a
    cold kind takes in it.
    """
    return fold_from + partition % max(1, fold_from // 2)


def _fold(segments: list[Segment], room: int, fold_from: int) -> tuple[int, ...]:
    """Choose the smallest segments that fit into `room` records, if they are many or fill it."""
    chosen: list[int] = []
    left = room
    for segment in sorted(segments, key=lambda segment: segment.live):
        if segment.live > min(left, _FULL - 1) or len(chosen) == limits.FOLD_SEGMENTS:
            break
        chosen.append(segment.sequence)
        left -= segment.live
    worth = len(chosen) >= fold_from or (len(chosen) > 1 and left < SEGMENT_RECORDS - _FULL)
    return tuple(chosen) if worth else ()


def lookups(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Split segments into reads of at most LOOKUP_BYTES, by the sizes that the shard lists, and LOOKUP_KEYS."""
    part: list[Segment] = []
    size = 0
    for segment in segments:
        segment_bytes = segment.records * RECORD_BYTES + _ENTITY_OVERHEAD
        if part and (size + segment_bytes > limits.LOOKUP_BYTES or len(part) == limits.LOOKUP_KEYS):
            yield part
            part, size = [], 0
        part.append(segment)
        size += segment_bytes
    if part:
        yield part


def shard_entity(key: Key, shard: Shard) -> Entity:
    segments = [(segment.sequence, segment.records, segment.live) for segment in shard.segments]
    return Entity(
        key=key,
        properties={
            "format": FORMAT,
            "born": shard.born,
            "sequence": shard.sequence,
            "ballots": shard.ballots,
            "counts": msgspec.json.encode(shard.counts).decode(),
            "segments": msgspec.json.encode(segments).decode(),
        },
    )


def segment_entity(key: Key, records: Records) -> Entity:
    return Entity(key=key, properties={"format": FORMAT, "records": pack(records)})


_segments = msgspec.json.Decoder(tuple[tuple[int, int, int], ...])
_counts = msgspec.json.Decoder(tuple[int, ...])


def parse_shard(entity: Entity) -> Shard:
    """Return the sums of a Shard entity; raises NewerFormat or Corrupt."""
    properties = _known(entity)
    try:
        return Shard(
            born=msgspec.convert(properties.get("born", 0), int),
            sequence=msgspec.convert(properties["sequence"], int),
            ballots=msgspec.convert(properties["ballots"], int),
            counts=_counts.decode(msgspec.convert(properties["counts"], str)),
            segments=tuple(Segment(*row) for row in _segments.decode(msgspec.convert(properties["segments"], str))),
        )
    except (KeyError, msgspec.MsgspecError) as error:
        raise Corrupt(f"shard {entity.key}: {error}") from error


def parse_segment(entity: Entity) -> Records:
    """Return the records of a Segment entity; raises NewerFormat or Corrupt."""
    try:
        return unpack(msgspec.convert(_known(entity)["records"], bytes))
    except (KeyError, ValueError) as error:
        raise Corrupt(f"segment {entity.key}: {error}") from error


def _known(entity: Entity) -> Mapping[str, object]:
    written = entity.properties.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise NewerFormat(f"{entity.key} has format {written}, this version of Tally reads up to {FORMAT}")
    return entity.properties
