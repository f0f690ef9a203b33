import tracemalloc
from functools import reduce
from itertools import pairwise
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.votes import records as module
from tally.votes.poll import Revote
from tally.votes.records import (
    EMPTY,
    RECORD_BYTES,
    Records,
    Run,
    absorb,
    best,
    find,
    join,
    live,
    locate,
    merge,
    pack,
    ranks,
    unpack,
)
from tally.votes.verdict import partitions

Row = tuple[int, int, int]
# Few distinct ballots, some of which share their first 64 bits: collisions of every kind are likely.
rows = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 50)).map(lambda row: (row[0] << 60, *row[1:])),
    max_size=60,
)
revotes = st.sampled_from(["keep", "replace"])


def records(table: list[Row]) -> Records:
    return Records(*(np.array([row[column] for row in table], np.uint64) for column in range(3)))


def table(made: Records) -> list[Row]:
    return list(zip(made.high.tolist(), made.low.tolist(), made.rank.tolist(), strict=True))


def model(copies: list[Row], revote: Revote) -> dict[tuple[int, int], int]:
    held: dict[tuple[int, int], int] = {}
    choose = min if revote == "keep" else max
    for high, low, rank in copies:
        held[high, low] = choose(held.get((high, low), rank), rank)
    return held


def held(runs: tuple[Run, ...]) -> dict[tuple[int, int], int]:
    return {(high, low): rank for run in merge(runs) for high, low, rank in table(run.records)}


@given(rows, revotes)
def test_best_is_a_function_of_the_set_of_copies(copies: list[Row], revote: Revote) -> None:
    made = best(records(copies), revote)
    assert {(high, low): rank for high, low, rank in table(made)} == model(copies, revote)
    assert [row[:2] for row in table(made)] == sorted(model(copies, revote))


@given(rows, revotes, st.integers(0, 2**32), st.integers(1, 12))
def test_any_split_order_and_repetition_gives_the_same_live_records(
    copies: list[Row], revote: Revote, seed: int, parts: int
) -> None:
    random = Random(seed)
    again = copies + random.sample(copies, len(copies) // 2)
    random.shuffle(again)
    cuts = sorted(random.randrange(len(again) + 1) for _ in range(parts))
    pieces = [again[start:end] for start, end in pairwise([0, *cuts, len(again)])]
    runs = reduce(
        lambda held, piece: absorb(held, records(piece[1]), piece[0], revote), enumerate(pieces, 1), tuple[Run, ...]()
    )
    assert held(runs) == model(copies, revote)
    for run in runs:
        keys = [row[:2] for row in table(run.records)]
        assert keys == sorted(set(keys))


@given(rows, revotes)
def test_find_tells_the_live_record_and_its_newest_segment(copies: list[Row], revote: Revote) -> None:
    runs: tuple[Run, ...] = ()
    for segment, row in enumerate(copies, 1):
        runs = absorb(runs, records([row]), segment, revote)
    expected = model(copies, revote)
    newest = {row[:2]: segment for segment, row in enumerate(copies, 1) if row[2] == expected[row[:2]]}
    asked = records([(high, low, 0) for high, low in expected] + [(7 << 60, 9, 0)])
    known, rank, segment_of = find(runs, asked)
    assert known.tolist() == [True] * len(expected) + [False]
    assert rank.tolist() == [*expected.values(), 0]
    assert segment_of.tolist() == [newest[ballot] for ballot in expected] + [0]


@given(rows, revotes, st.sets(st.integers(1, 8)))
def test_live_returns_just_the_live_records_of_the_segments(
    copies: list[Row], revote: Revote, wanted: set[int]
) -> None:
    runs: tuple[Run, ...] = ()
    for segment in range(1, 9):
        runs = absorb(runs, records(copies[segment - 1 :: 8]), segment, revote)
    everything = records([(high, low, rank) for (high, low), rank in held(runs).items()])
    _, _, segment_of = find(runs, everything)
    expected = [row for row, segment in zip(table(everything), segment_of.tolist(), strict=True) if segment in wanted]
    assert sorted(table(live(runs, wanted))) == sorted(expected)


def test_ballots_that_share_their_first_word_are_told_apart() -> None:
    run = Run(records([(1, 1, 5), (1, 2, 6), (1, 9, 7), (2, 1, 8)]), np.ones(4, np.uint32))
    assert locate(run, records([(1, 9, 0), (1, 3, 0), (1, 2, 0), (3, 1, 0), (0, 1, 0)])).tolist() == [2, -1, 1, -1, -1]


@given(rows)
def test_packed_records_come_back(copies: list[Row]) -> None:
    packed = pack(records(copies))
    assert len(packed) == len(copies) * RECORD_BYTES
    back = unpack(packed)
    assert table(back) == copies
    assert {column.dtype for column in (back.high, back.low, back.rank)} == {np.dtype(np.uint64)}


def test_packed_form_is_the_ballot_and_the_rank_in_big_endian() -> None:
    ballot = bytes(range(16))
    high, low = int.from_bytes(ballot[:8], "big"), int.from_bytes(ballot[8:], "big")
    made = Records(
        np.array([high], np.uint64),
        np.array([low], np.uint64),
        ranks(np.array([1_900_000_000_000_001], np.uint64), np.array([999])),
    )
    assert pack(made) == ballot + (1_900_000_000_000_001 * 1024 + 999).to_bytes(8, "big")
    assert made.options.tolist() == [999]
    assert made.accepted_at.tolist() == [1_900_000_000_000_001]


def test_a_cut_segment_is_not_taken_for_a_shorter_one() -> None:
    with pytest.raises(ValueError, match="multiple"):
        unpack(bytes(RECORD_BYTES * 2 - 1))


@given(st.lists(st.integers(0, 2**128 - 1), max_size=50), st.integers(1, 256))
def test_partition_is_the_big_endian_id_modulo_the_count(ballots: list[int], count: int) -> None:
    made = records([(ballot >> 64, ballot & (2**64 - 1), 0) for ballot in ballots])
    assert partitions(made, count).dtype == np.intp
    assert partitions(made, count).tolist() == [ballot % count for ballot in ballots]


def test_runs_stay_few() -> None:
    random = Random(1)
    runs: tuple[Run, ...] = ()
    for segment in range(1, 500):
        runs = absorb(runs, records([(random.getrandbits(64), 1, 1) for _ in range(20)]), segment, "keep")
    assert len(runs) <= 6
    assert sum(map(len, runs)) == 499 * 20


def test_joining_nothing_is_empty() -> None:
    assert join([]) is EMPTY


def test_all_runs_are_merged_into_one() -> None:
    runs: tuple[Run, ...] = ()
    for segment, numbers in enumerate((range(100), range(100, 120), range(120, 123)), 1):
        runs = absorb(runs, records([(number, 1, 1) for number in numbers]), segment, "keep")
    assert len(runs) == 3
    (run,) = merge(runs)
    assert run.records.high.tolist() == list(range(123))


def test_a_ballot_that_shares_its_first_word_with_the_last_of_a_run_comes_after_it() -> None:
    runs = absorb((), records([(1, 1, 1), (5, 1, 1)]), 1, "keep")
    (run,) = absorb(runs, records([(5, 9, 1)]), 2, "keep")
    assert [row[:2] for row in table(run.records)] == [(1, 1), (5, 1), (5, 9)]


def test_an_empty_run_has_no_ballot() -> None:
    assert locate(Run(EMPTY, np.empty(0, np.uint32)), records([(1, 1, 0), (2, 1, 0)])).tolist() == [-1, -1]


def test_of_copies_in_one_segment_the_one_that_counts_is_held() -> None:
    copies = records([(1, 1, 7), (1, 1, 5), (1, 1, 9)])
    assert [row[2] for run in absorb((), copies, 1, "keep") for row in table(run.records)] == [5]
    assert [row[2] for run in absorb((), copies, 1, "replace") for row in table(run.records)] == [9]


def test_a_run_of_at_most_four_times_the_size_is_merged_and_no_bit_of_it_lost() -> None:
    rank = (1_900_000_000_000_001 << 10) + 1
    runs = absorb((), records([(number, 1, rank) for number in range(4)]), 1, "keep")
    (run,) = absorb(runs, records([(9, 1, rank + 1)]), 2, "keep")
    assert run.records.rank.tolist() == [rank] * 4 + [rank + 1]
    assert {column.dtype for column in (run.records.high, run.records.low, run.records.rank)} == {np.dtype(np.uint64)}
    assert run.segment.dtype == find((run,), run.records)[2].dtype == np.uint32
    longer = absorb((), records([(number, 1, rank) for number in range(5)]), 1, "keep")
    assert longer[0].segment.dtype == np.uint32
    assert len(absorb(longer, records([(9, 1, rank)]), 2, "keep")) == 2


@given(st.lists(rows, max_size=8), revotes, st.integers(1, 5))
def test_merging_block_by_block_gives_the_same_records_in_order(
    segments: list[list[Row]], revote: Revote, block: int
) -> None:
    with mock.patch.object(module, "_MERGE_BLOCK", block):
        runs: tuple[Run, ...] = ()
        for number, content in enumerate(segments, start=1):
            runs = absorb(runs, records(content), number, revote)
        merged = merge(runs)
    assert len(merged) == any(map(len, segments))
    for run in (*runs, *merged):
        ballots = [row[:2] for row in table(run.records)]
        assert ballots == sorted(set(ballots))
    found = {row[:2]: row[2] for run in merged for row in table(run.records)}
    assert found == model([row for content in segments for row in content], revote)
    for run in merged:
        assert {column.dtype for column in module._columns(run)} == {np.dtype(np.uint64), np.dtype(np.uint32)}
        _, rank, segment = find(runs, run.records)
        assert (rank.tolist(), segment.tolist()) == (run.records.rank.tolist(), run.segment.tolist())


def test_merging_needs_little_more_than_what_is_held_twice() -> None:
    generator = np.random.default_rng(1)
    size, part = 400_000, 10_000
    with mock.patch.object(module, "_MERGE_BLOCK", 1 << 12):
        tracemalloc.start()
        runs: tuple[Run, ...] = ()
        for number in range(size // part):
            high, low, rank = generator.integers(0, 1 << 62, (3, part), np.uint64)
            runs = absorb(runs, Records(high, low, rank), number, "keep")
        held, peak = (value / size for value in tracemalloc.get_traced_memory())
        tracemalloc.stop()
    assert sum(map(len, runs)) == size
    assert held <= 40
    assert peak <= 60
