"""In which order a lessee visits the shards."""

from random import Random

import pytest

from tally.tasks.tour import Tour


def tour() -> Tour:
    made = Tour(Random(1))
    made.visited(1, 0.0, drained=False)  # goes on at 2
    return made


def test_it_goes_round_from_where_it_was() -> None:
    assert tour().order({0, 1, 2, 3}, 4, 0.0) == [2, 3, 0, 1]
    assert tour().order({0, 1, 3}, 4, 0.0) == [3, 0, 1]


def test_lessees_begin_in_all_shards_alike() -> None:
    starts = [Tour(Random(seed)).order(range(3), 3, 0.0)[0] for seed in range(300)]
    assert all(starts.count(shard) > 60 for shard in range(3))


def test_a_drained_shard_comes_last_for_a_while_and_then_in_its_place() -> None:
    seen = tour()
    seen.visited(3, 10.0, drained=True)
    seen.visited(2, 11.0, drained=True)
    seen.visited(1, 11.0, drained=False)
    assert seen.order(range(5), 5, 12.0) == [4, 0, 1, 3, 2]
    assert seen.order(range(5), 5, 13.5) == [3, 4, 0, 1, 2]
    assert seen.order(range(5), 5, 15.0) == [2, 3, 4, 0, 1]


def test_a_drained_shard_that_has_filled_again_is_as_any_other() -> None:
    seen = tour()
    seen.visited(2, 10.0, drained=True)
    seen.visited(2, 10.1, drained=False)
    assert seen.order(range(4), 4, 10.2) == [3, 0, 1, 2]


def test_where_another_was_met_is_last_and_the_next_place_is_any() -> None:
    firsts = set()
    for seed in range(50):
        seen = Tour(Random(seed))
        seen.visited(2, 1.0, drained=False)
        seen.met(2, 1.0)
        order = seen.order(range(4), 4, 1.0)
        assert order[-1] == 2
        firsts.add(order[0])
    assert firsts == {0, 1, 3}


@pytest.mark.parametrize(("later", "alone"), [(0.0, False), (9.9, False), (10.0, True)])
def test_one_that_met_another_is_in_company_for_ten_seconds(later: float, alone: bool) -> None:
    seen = tour()
    assert seen.alone(1.0)
    seen.met(0, 1.0)
    assert seen.alone(1.0 + later) is alone


def test_no_shard_is_left_out_whatever_is_met_elsewhere() -> None:
    """A lessee that sees one shard a second, each of them drained or another's, is in each within a bound."""
    random = Random(7)
    lessee = Tour(random)
    seen = dict.fromkeys(range(16), 0.0)
    for second in range(2_000):
        now = float(second)
        shard = lessee.order(range(16), 16, now)[0]
        if random.random() < 0.5:
            lessee.met(shard, now)
        else:
            lessee.visited(shard, now, drained=random.random() < 0.5)
        seen[shard] = now
        assert now - min(seen.values()) < 200, f"shard {min(seen, key=lambda each: seen[each])} is left out"


def test_when_all_are_shunned_the_one_shunned_longest_is_first() -> None:
    lessee = tour()
    for shard in (2, 0, 3, 1):
        lessee.met(shard, shard + 1.0)
    assert lessee.order(range(4), 4, 3.5) == [0, 1, 2, 3]
