from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally import limits
from tally.errors import Rejected
from tally.ports import Delete, Entity, Insert, OnConflict, Update, Value
from tally.votes import keys, ledger
from tally.votes.ledger import SEGMENT_RECORDS, Commit, Corrupt, Full, NewerFormat, Partition, Segment, Shard
from tally.votes.poll import Revote
from tally.votes.records import OPTION_BITS, RECORD_BYTES, Records, find, merge

KEY = keys.shard("p", 0)


def records(votes: Iterable[tuple[int, int, int]]) -> Records:
    """Make records of (ballot, option, instant)."""
    made = list(votes)
    return Records(
        np.array([ballot for ballot, _, _ in made], np.uint64),
        np.zeros(len(made), np.uint64),
        np.array([(instant << OPTION_BITS) + option for _, option, instant in made], np.uint64),
    )


def committed(
    held: Partition, votes: Records, revote: Revote = "keep", fold_from: int = 32
) -> tuple[Partition, Commit]:
    plan = ledger.plan(held, votes, revote, fold_from=fold_from)
    return plan.after(held, held.version + 1, revote), plan


def stored(history: list[Commit]) -> dict[int, Records]:
    """Return the live segments that a history of commits leaves in the store."""
    segments: dict[int, Records] = {}
    for commit in history:
        for gone in commit.folded:
            del segments[gone]
        segments[commit.shard.sequence] = commit.records
    return segments


votes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(1, 40)), min_size=1, max_size=25)


@given(st.lists(votes, max_size=20), st.sampled_from(["keep", "replace"]), st.integers(2, 6))
def test_counts_ballots_and_segments_agree_with_the_copies(
    batches: list[list[tuple[int, int, int]]], revote: Revote, fold_from: int
) -> None:
    held, history = Partition(), list[Commit]()
    choose = min if revote == "keep" else max
    expected: dict[int, tuple[int, int]] = {}
    for batch in batches:
        made = records(batch)
        done = ledger.settled(held, made, revote)
        for ballot, option, instant in batch:
            expected[ballot] = choose(expected.get(ballot, (instant, option)), (instant, option))
        if not done.all():
            held, plan = committed(held, made[~done], revote, fold_from)
            history.append(plan)
        assert ledger.settled(held, made, revote).all()
    counts = [0] * max(len(held.shard.counts), 5)
    for _, option in expected.values():
        counts[option] += 1
    assert list(held.shard.counts) == counts[: len(held.shard.counts)]
    assert sum(held.shard.counts) == held.shard.ballots == len(expected)
    segments = stored(history)
    assert {segment.sequence: segment.records for segment in held.shard.segments} == {
        sequence: len(content) for sequence, content in segments.items()
    }
    assert sum(segment.live for segment in held.shard.segments) == len(expected)
    for run in merge(held.runs):
        _, _, origin = find(held.runs, run.records)
        made = run.records
        live = dict(zip(*(column.tolist() for column in np.unique(origin, return_counts=True)), strict=True))
        assert {s.sequence: s.live for s in held.shard.segments if s.live} == live
        for segment, content in segments.items():
            for high, rank in zip(
                run.records.high[origin == segment], run.records.rank[origin == segment], strict=True
            ):
                assert rank in content.rank[content.high == high]


def test_a_first_commit_inserts_and_later_ones_are_guarded_by_the_version() -> None:
    held, plan = committed(Partition(), records([(1, 0, 5)]))
    assert [type(write) for write in plan.writes(KEY, 0)] == [Insert, Insert]
    update, insert = ledger.plan(held, records([(2, 0, 5)]), "keep").writes(KEY, 77)
    assert isinstance(update, Update)
    assert (update.base_version, update.on_conflict) == (77, OnConflict.FAIL)
    assert isinstance(insert, Insert)
    assert insert.entity.key == keys.segment(KEY, 2)


def test_no_property_is_indexed() -> None:
    _, plan = committed(Partition(), records([(1, 0, 5)]))
    assert all(write.entity.indexed == frozenset() for write in plan.writes(KEY, 1) if not isinstance(write, Delete))


def test_an_earlier_copy_with_another_option_moves_one_count() -> None:
    held, _ = committed(Partition(), records([(1, 0, 9)]))
    assert ledger.settled(held, records([(1, 1, 8)]), "keep").tolist() == [False]
    held, _ = committed(held, records([(1, 1, 8)]))
    assert held.shard.counts == (0, 1)
    assert held.shard.ballots == 1


def test_small_segments_are_folded_once_they_are_many() -> None:
    held, folds = Partition(), list[tuple[int, ...]]()
    for number in range(200):
        held, plan = committed(held, records([(number, 0, 5)]))
        folds.append(plan.folded)
        assert len(held.shard.segments) <= 33
    assert sum(map(bool, folds)) >= 5
    assert held.shard.ballots == sum(segment.live for segment in held.shard.segments) == 200


def test_a_fold_takes_at_most_its_limit_and_deletes_what_it_took() -> None:
    held = Partition()
    for number in range(limits.FOLD_SEGMENTS + 5):
        held, _ = committed(held, records([(number, 0, 5)]), fold_from=10_000)
    plan = ledger.plan(held, records([(1_000, 0, 5)]), "keep")
    assert len(plan.folded) == limits.FOLD_SEGMENTS
    writes = plan.writes(KEY, 1)
    assert [write.key for write in writes if isinstance(write, Delete)] == [
        keys.segment(KEY, sequence) for sequence in plan.folded
    ]
    assert len(writes) <= limits.COMMIT_MUTATIONS


def test_superseded_segments_fold_whatever_their_size() -> None:
    voters = range(SEGMENT_RECORDS)
    held, _ = committed(Partition(), records((voter, 0, 1) for voter in voters), "replace")
    held, _ = committed(held, records((voter, 1, 2) for voter in voters), "replace", fold_from=10_000)
    assert [segment.live for segment in held.shard.segments] == [0, SEGMENT_RECORDS]
    held, plan = committed(held, records([(0, 0, 3)]), "replace", fold_from=1)
    assert plan.folded == (1,)
    assert held.shard.counts == (1, SEGMENT_RECORDS - 1)


@pytest.mark.parametrize(
    ("count", "written"), [(SEGMENT_RECORDS, SEGMENT_RECORDS), (SEGMENT_RECORDS + 1, SEGMENT_RECORDS)]
)
def test_a_segment_takes_what_fits_and_leaves_the_rest(count: int, written: int) -> None:
    plan = ledger.plan(Partition(), records((voter, 0, 1) for voter in range(count)), "keep")
    assert len(plan.records) == written
    segment = plan.writes(KEY, 0)[1]
    assert isinstance(segment, Insert)
    assert len(bytes(segment.entity.properties["records"])) <= limits.SEGMENT_BYTES  # type: ignore[arg-type]  # bytes


def test_a_commit_stays_below_the_request_limit_at_the_worst() -> None:
    assert limits.SEGMENT_BYTES + limits.SHARD_BYTES + limits.FOLD_SEGMENTS * 500 < limits.COMMIT_BYTES


def test_a_full_partition_takes_what_it_knows_and_no_new_ballot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BALLOTS_PER_PARTITION", 3)
    held, _ = committed(Partition(), records([(1, 0, 5), (2, 0, 5)]))
    held, plan = committed(held, records([(3, 0, 5), (4, 0, 5)]))
    assert held.shard.ballots == 3
    assert len(plan.records) == 1
    with pytest.raises(Full, match="3 ballots"):
        ledger.plan(held, records([(4, 0, 5)]), "keep")
    held, _ = committed(held, records([(3, 1, 4), (4, 0, 5)]))
    assert held.shard.counts == (2, 1)


def test_a_shard_over_its_limit_is_refused_before_the_store_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, plan = committed(Partition(), records([(1, 0, 5)]))
    size = sum(len(str(value)) for value in ledger.shard_entity(KEY, plan.shard).properties.values())
    monkeypatch.setattr(limits, "SHARD_BYTES", size)
    plan.writes(KEY, 0)
    monkeypatch.setattr(limits, "SHARD_BYTES", size - 1)
    with pytest.raises(Rejected, match=f"^shard of {size} bytes is over the limit of {size - 1}$") as caught:
        plan.writes(KEY, 0)
    assert caught.value.status == "SHARD_SIZE"


def test_entities_come_back_as_they_were() -> None:
    shard = Shard(born=7, sequence=9, ballots=3, counts=(1, 2, 0), segments=(Segment(4, 10, 3), Segment(9, 1, 0)))
    assert ledger.parse_shard(ledger.shard_entity(KEY, shard)) == shard
    content = records([(1, 2, 3), (4, 5, 6)])
    back = ledger.parse_segment(ledger.segment_entity(keys.segment(KEY, 9), content))
    assert back.rank.tolist() == content.rank.tolist()


def test_what_is_stored_is_the_documented_form() -> None:
    shard = Shard(born=7, sequence=9, ballots=3, counts=(1, 2), segments=(Segment(4, 10, 3), Segment(9, 1, 0)))
    assert ledger.shard_entity(KEY, shard).properties == {
        "format": 1,
        "born": 7,
        "sequence": 9,
        "ballots": 3,
        "counts": "[1,2]",
        "segments": "[[4,10,3],[9,1,0]]",
    }
    stored = ledger.segment_entity(KEY, records([(1, 2, 3)]))
    ballot_and_rank = (1).to_bytes(8, "big") + bytes(8) + (3 * 1024 + 2).to_bytes(8, "big")
    assert stored.properties == {"format": 1, "records": ballot_and_rank}


def test_a_shard_that_an_earlier_version_wrote_does_not_say_when_it_was_born() -> None:
    entity = ledger.shard_entity(KEY, Shard(born=7, sequence=1))
    properties = {name: value for name, value in entity.properties.items() if name != "born"}
    assert ledger.parse_shard(replace(entity, properties=properties)) == Shard(sequence=1)


def test_a_ledger_is_born_with_the_least_instant_of_its_first_commit() -> None:
    held, first = committed(Partition(), records([(1, 0, 9), (2, 0, 8)]))
    _, second = committed(held, records([(3, 0, 5)]))
    assert (first.shard.born, second.shard.born) == (8, 8)
    unknown = Partition(version=3, shard=Shard(sequence=1, segments=(Segment(1, 0, 0),)))
    assert ledger.plan(unknown, records([(3, 0, 5)]), "keep").shard.born == 0


@pytest.mark.parametrize(
    ("found", "continued"),
    [
        (Shard(born=7, sequence=3, ballots=2), True),
        (Shard(born=7, sequence=4, ballots=1), True),
        (Shard(born=7, sequence=3, ballots=1), False),
        (Shard(born=7, sequence=2), False),
        (Shard(born=8, sequence=4), False),
        (Shard(born=8, sequence=3, ballots=2), False),
        (Shard(sequence=4), True),
    ],
    ids=["the same", "later", "another as long", "earlier", "another", "another alike", "of an earlier version"],
)
def test_what_goes_on_from_what_is_held(found: Shard, continued: bool) -> None:
    assert ledger.continues(Shard(born=7, sequence=3, ballots=2), found) == continued


@pytest.mark.parametrize(
    ("segments", "continued"),
    [
        ([(2, 10, 8), (3, 5, 5), (4, 1, 1)], True),
        ([(2, 10, 6), (4, 1, 1)], True),
        ([(2, 10, 8), (3, 5, 5), (5, 9, 9)], True),
        ([(4, 15, 15)], True),
        ([(2, 10, 9), (4, 1, 1)], False),
        ([(2, 10, 8), (3, 6, 5), (4, 1, 1)], False),
        ([(2, 10, 8), (3, 4, 4), (4, 1, 1)], False),
        ([(1, 3, 3), (4, 1, 1)], False),
    ],
    ids=[
        "one more",
        "some folded",
        "two more",
        "all folded",
        "more live",
        "more records",
        "fewer records",
        "one unheard of",
    ],
)
def test_a_longer_ledger_goes_on_from_what_is_held_if_its_segments_do(
    segments: list[tuple[int, int, int]], continued: bool
) -> None:
    held = Shard(born=7, sequence=3, segments=(Segment(2, 10, 8), Segment(3, 5, 5)))
    found = Shard(born=7, sequence=5, segments=tuple(Segment(*segment) for segment in segments))
    assert ledger.continues(held, found) == continued


@pytest.mark.parametrize("damage", [{"records": bytes(23)}, {"records": "text"}, {"format": None, "records": None}])
def test_a_damaged_segment_is_corrupt(damage: dict[str, Value]) -> None:
    with pytest.raises(Corrupt, match=r"^segment .*Shard.*: "):
        ledger.parse_segment(Entity(key=KEY, properties=damage))


def test_a_newer_format_is_left_alone() -> None:
    for entity in (ledger.shard_entity(KEY, Shard()), ledger.segment_entity(KEY, records([]))):
        newer = replace(entity, properties={**entity.properties, "format": ledger.FORMAT + 1})
        parse = ledger.parse_shard if "sequence" in entity.properties else ledger.parse_segment
        with pytest.raises(NewerFormat, match=f"format {ledger.FORMAT + 1}"):
            parse(newer)


@pytest.mark.parametrize(
    "damage", [{"counts": "[1,"}, {"counts": 7}, {"sequence": None}, {"segments": "[[1,2]]"}, {"ballots": "3"}]
)
def test_a_damaged_shard_is_corrupt(damage: dict[str, Value]) -> None:
    entity = ledger.shard_entity(KEY, Shard(sequence=1))
    with pytest.raises(Corrupt, match="Shard"):
        ledger.parse_shard(Entity(key=KEY, properties={**entity.properties, **damage}))


def test_lookups_stay_within_their_bytes_by_the_listed_sizes() -> None:
    random = Random(3)
    segments = [Segment(n, random.randrange(SEGMENT_RECORDS), 0) for n in range(300)]
    segments += [Segment(n, 0, 0) for n in range(300, 5_000)]
    parts = list(ledger.lookups(segments))
    assert [segment for part in parts for segment in part] == segments
    for part in parts:
        assert sum(segment.records for segment in part) * RECORD_BYTES <= limits.LOOKUP_BYTES
        assert len(part) <= limits.LOOKUP_KEYS


def test_a_lookup_is_filled_to_its_bytes_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [Segment(number, 10, 10) for number in range(5)]
    pair = 2 * (10 * RECORD_BYTES + 1_000)
    monkeypatch.setattr(limits, "LOOKUP_BYTES", pair)
    assert [len(part) for part in ledger.lookups(segments)] == [2, 2, 1]
    monkeypatch.setattr(limits, "LOOKUP_BYTES", pair - 1)
    assert [len(part) for part in ledger.lookups(segments)] == [1] * 5
    monkeypatch.setattr(limits, "LOOKUP_BYTES", 1)
    assert [len(part) for part in ledger.lookups(segments)] == [1] * 5
    assert list(ledger.lookups([])) == []


@pytest.mark.parametrize(
    ("live", "room", "fold_from", "folded"),
    [
        ([5], 5, 1, (1,)),
        ([17], 20, 1, (1,)),
        ([18], 20, 1, ()),
        ([3, 4], 6, 2, ()),
        ([10, 9], 20, 5, (2, 1)),
        ([9, 9], 20, 5, ()),
    ],
)
def test_segments_fold_if_they_fit_and_are_many_or_fill_the_new_one(
    monkeypatch: pytest.MonkeyPatch, live: list[int], room: int, fold_from: int, folded: tuple[int, ...]
) -> None:
    monkeypatch.setattr(ledger, "SEGMENT_RECORDS", 20)
    monkeypatch.setattr(ledger, "_FULL", 18)
    segments = [Segment(number, 20, count) for number, count in enumerate(live, 1)]
    assert ledger._fold(segments, room, fold_from) == folded


def test_a_fold_leaves_room_for_what_the_commit_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SEGMENT_RECORDS", 20)
    held, plan = committed(Partition(), records((voter, 0, 1) for voter in range(10)))
    assert plan.shard.counts == (10,)
    assert ledger.plan(held, records((voter, 0, 1) for voter in range(10, 21)), "keep", fold_from=1).folded == ()
    assert ledger.plan(held, records((voter, 0, 1) for voter in range(10, 20)), "keep", fold_from=1).folded == (1,)


@pytest.mark.parametrize("fold_from", [1, 2, 8, 32])
def test_partitions_that_began_together_do_not_fold_together(fold_from: int) -> None:
    """And none waits for more segments than one fold takes."""
    spread = Counter(ledger.folds_from(fold_from, partition) for partition in range(256))
    assert min(spread) == fold_from
    assert max(spread) <= max(fold_from, fold_from * 3 // 2) <= limits.FOLD_SEGMENTS
    assert max(spread.values()) == -(-256 // max(1, fold_from // 2))
