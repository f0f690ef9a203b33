"""What must be true at quiescence, of the contents of the store and of Pub/Sub alone."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from tally import limits
from tally.clock import SECOND, Clock
from tally.errors import TallyError
from tally.ports import Entity, Key
from tally.testing.clock import EPOCH
from tally.testing.store import size
from tally.votes.polls import from_entity
from tally.votes.recount import recount
from tally.votes.results import ResultsReader
from tests.simulation.traffic import Submitted, Traffic
from tests.simulation.truth import Copy, Rank, Truth, WatchedStore, records

GRACE = 60 * SECOND
_LATEST = EPOCH + 100_000 * SECOND  # later than any clock of the run


def judge(truth: Truth, store: WatchedStore, traffic: Traffic) -> list[str]:
    """Return what is wrong, as sentences."""
    live: dict[tuple[str, bytes], Rank] = {}
    wrong: list[str] = []
    for shard in store.of_kind("Shard"):
        wrong += _shard(truth, store, shard, live)
    wrong += _strays(store)
    wrong += _ballots(truth, live)
    wrong += _accepted(truth, live, traffic)
    wrong += _submitted(truth, traffic)
    wrong += _letters(truth)
    return wrong


async def audit(store: WatchedStore, clock: Clock) -> list[str]:
    """Return what the shipped recount finds, and whether the shipped results say the same."""
    wrong: list[str] = []
    reader = ResultsReader(store, None, clock)  # type: ignore[arg-type]  # `count` takes the poll, not its cache
    for entity in store.of_kind("Poll"):
        poll = from_entity(entity)
        try:
            counted = await recount(store, poll)
        except TallyError as error:
            wrong.append(f"recount of {poll.id}: {error}")
            continue
        wrong += [f"recount: {difference}" for difference in counted.differences]
        results = await reader.count(poll)
        if list(results.counts or ()) != np.bincount(counted.records.options, minlength=len(poll.options)).tolist():
            wrong.append(f"results of {poll.id} are {results.counts}, the recount differs")
    return wrong


def _shard(truth: Truth, store: WatchedStore, shard: Entity, live: dict[tuple[str, bytes], Rank]) -> Iterator[str]:
    """Counts = ledger; adds the shard's live records to `live`."""
    name = str(shard.key[0][1])
    poll, _, partition = name.rpartition(":")
    if poll.startswith("~"):
        return  # what a worker that died while it tried the version guard left behind
    if poll not in truth.polls:
        yield f"shard {name} belongs to no poll"
        return
    ranks: dict[bytes, Rank] = {}
    where: dict[bytes, int] = {}
    listed = json.loads(str(shard.properties["segments"]))
    for sequence, count, _ in listed:
        segment = store.entities.get((*shard.key, ("Segment", sequence)))
        if segment is None:
            yield f"shard {name} lists segment {sequence}, which is missing"
            continue
        if len(records(segment)) != count:
            yield f"segment {sequence} of {name} holds {len(records(segment))} records, listed are {count}"
        for ballot, rank in records(segment):
            best = truth.better(poll, rank, ranks.get(ballot, rank))
            if best == rank:
                ranks[ballot], where[ballot] = rank, sequence
    of_segment = Counter(where.values())
    for sequence, _, alive in listed:
        if of_segment[sequence] != alive:
            yield f"segment {sequence} of {name} has {of_segment[sequence]} live records, listed are {alive}"
    if shard.properties["ballots"] != len(ranks):
        yield f"shard {name} says {shard.properties['ballots']!r} ballots, its segments hold {len(ranks)}"
    counted = Counter(dict(enumerate(json.loads(str(shard.properties["counts"])))))
    if +counted != Counter(number for _, number in ranks.values()):
        yield f"shard {name} counts {dict(+counted)}, its segments {Counter(number for _, number in ranks.values())}"
    for ballot, rank in ranks.items():
        if int.from_bytes(ballot, "big") % truth.polls[poll]["partitions"] != int(partition):
            yield f"ballot {ballot.hex()} is in the wrong partition {name}"
        if (poll, ballot) in live:
            yield f"ballot {ballot.hex()} counts twice"
        live[poll, ballot] = rank


def _strays(store: WatchedStore) -> Iterator[str]:
    """No entity that nothing lists, none over its limit."""
    listed: dict[Key, set[int]] = defaultdict(set)
    for shard in store.of_kind("Shard"):
        listed[shard.key] = {sequence for sequence, _, _ in json.loads(str(shard.properties["segments"]))}
        if size(shard) > limits.SHARD_BYTES:
            yield f"shard {shard.key} has {size(shard)} bytes"
    for segment in store.of_kind("Segment"):
        if segment.key[-1][1] not in listed[segment.key[:-1]]:
            yield f"segment {segment.key} is listed by no shard"
        if size(segment) > limits.SEGMENT_BYTES:
            yield f"segment {segment.key} has {size(segment)} bytes"


def _ballots(truth: Truth, live: dict[tuple[str, bytes], Rank]) -> Iterator[str]:
    """A ballot's record is the best of the copies that were published, dead letters left out."""
    copies = truth.copies_of()
    for place in live.keys() - copies.keys():
        yield f"ballot {place[1].hex()} of {place[0]} counts and was never published"
    for place, published in copies.items():
        if place[0] not in truth.polls:
            continue
        rank = live.get(place)
        must = [truth.rank(copy) for copy in published if copy not in truth.letters]
        if rank is None:
            if must:
                yield f"ballot {place[1].hex()} of {place[0]} is published and does not count"
        elif rank not in [truth.rank(copy) for copy in published]:
            yield f"ballot {place[1].hex()} of {place[0]} counts as {rank}, as which it was not published"
        elif any(truth.better(place[0], rank, other) != rank for other in must):
            yield f"ballot {place[1].hex()} of {place[0]} counts as {rank}, the copies are {sorted(must)}"


def _accepted(truth: Truth, live: dict[tuple[str, bytes], Rank], traffic: Traffic) -> Iterator[str]:
    """202 means counted."""
    for place in sorted(traffic.accepted - live.keys()):
        if place[1] == truth.poisoned:
            continue
        letters = {reason for copy, reason in truth.letters.items() if (copy.poll, copy.ballot) == place}
        yield f"ballot {place[1].hex()} of {place[0]} was accepted and does not count; dead letters: {letters}"


def _submitted(truth: Truth, traffic: Traffic) -> Iterator[str]:
    submitted = traffic.submitted | traffic.strange
    for votes in truth.published.values():
        for copy in votes:
            if Submitted(copy.poll, copy.ballot, copy.option) not in submitted:
                yield f"ballot {copy.ballot.hex()} of {copy.poll} was published for {copy.option} and not submitted"


def _letters(truth: Truth) -> Iterator[str]:
    """No good vote is refused."""
    for copy, reason in truth.letters.items():
        if _is_good(truth, copy):
            yield f"a good vote of ballot {copy.ballot.hex()} of {copy.poll} is a dead letter: {reason}"


def _is_good(truth: Truth, copy: Copy) -> bool:
    """Say whether a worker has to count the copy, by the last definition: changes only ever refuse more."""
    poll = truth.polls.get(copy.poll)
    if poll is None or copy.accepted_at > _LATEST or copy.ballot == truth.poisoned:
        return False
    withdrawn = {option["id"]: option.get("withdrawn_at", 1 << 62) for option in poll["options"]}
    ends = min(poll["closes_at"], poll["deleted_at"])
    return copy.option in withdrawn and copy.accepted_at <= min(ends, withdrawn[copy.option]) + GRACE
