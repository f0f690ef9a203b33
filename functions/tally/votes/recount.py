"""Counts a poll again from its ledger alone, and says exactly what does not agree with its shards."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from tally.errors import Busy
from tally.ports import Key, Store, read
from tally.votes import keys, ledger, verdict
from tally.votes.ledger import Segment, Shard
from tally.votes.poll import Poll
from tally.votes.records import Records, best, join

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Recount:
    """`records`: the live ones of all partitions, sorted by ballot. `differences`: what is wrong, empty if nothing."""

    records: Records
    differences: tuple[str, ...]


async def recount(store: Store, poll: Poll, *, progress: Callable[[int], None] = lambda of: None) -> Recount:
    """Read every segment of a poll and check its shards; after each partition `progress` is told how many there are.

    Raises Busy when folds keep moving a partition while it is read, and what the store and the ledger's parsers raise.
    """
    parts, differences = [], list[str]()
    for partition in range(poll.partitions):
        shard, segments = await _read(store, keys.shard(poll.id, partition))
        live = best(join(list(segments.values())), poll.revote)
        differences += [
            f"partition {partition}: {difference}"
            for difference in _differences(poll, partition, shard, segments, live)
        ]
        parts.append(live)
        progress(poll.partitions)
    everything = join(parts)
    return Recount(records=everything[np.lexsort((everything.low, everything.high))], differences=tuple(differences))


async def _read(store: Store, key: Key) -> tuple[Shard, dict[int, Records]]:
    """Return a shard and the segments that it lists: again from the start when a fold moves them meanwhile."""
    incomplete_at: int | None = None
    for _ in range(_TRIES):
        found, _ = await read(store, [key])
        if key not in found:
            return Shard(), {}
        shard, version = ledger.parse_shard(found[key]), found[key].version
        segments = await _segments(store, key, shard.segments)
        # A segment that a shard lists twice running, and that was not there in between, is lost, not folded.
        if len(segments) == len(shard.segments) or version == incomplete_at:
            return shard, segments
        incomplete_at = version
    raise Busy(f"{key[0][1]} was folded {_TRIES} times while it was read", retry_after=60, code="ledger-moves")


async def _segments(store: Store, key: Key, listed: Sequence[Segment]) -> dict[int, Records]:
    segments: dict[int, Records] = {}
    for part in ledger.lookups(list(listed)):
        wanted = {keys.segment(key, segment.sequence): segment.sequence for segment in part}
        found, _ = await read(store, wanted)
        segments.update((wanted[found_key], ledger.parse_segment(entity)) for found_key, entity in found.items())
    return segments


def _differences(
    poll: Poll, partition: int, shard: Shard, segments: dict[int, Records], live: Records
) -> Iterator[str]:
    if len(live) != shard.ballots:
        yield f"the shard says {shard.ballots} ballots, the segments hold {len(live)}"
    counts = np.bincount(live.options, minlength=len(poll.options)).tolist()
    for number, (said, counted) in enumerate(zip_longest(shard.counts, counts, fillvalue=0)):
        if said != counted:
            option = poll.options[number].id if number < len(poll.options) else f"number {number}, which it has not"
            yield f"option {option}: the shard says {said}, the segments hold {counted}"
    newest = max(segments, default=0)
    if newest != shard.sequence:
        yield f"the shard's sequence is {shard.sequence}, its newest segment {newest}"
    for segment in shard.segments:
        if segment.sequence not in segments:
            yield f"segment {segment.sequence}: the shard lists it, it is not there"
        elif segment.records != (held := len(segments[segment.sequence])):
            yield f"segment {segment.sequence}: the shard lists {segment.records} records, it holds {held}"
    listed_live = sum(segment.live for segment in shard.segments)
    if listed_live != shard.ballots:
        yield f"the shard lists {listed_live} live records for {shard.ballots} ballots"
    astray = int(np.count_nonzero(verdict.partitions(live, poll.partitions) != partition))
    if astray:
        yield f"{astray} ballots belong to other partitions"
