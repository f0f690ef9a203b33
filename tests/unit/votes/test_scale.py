from itertools import pairwise
from pathlib import Path

import pytest

from tally import limits
from tally.votes import prices, scale
from tests.event import Event, play

SIZES = [scale.plan(10**power, 5, "us-central1") for power in (3, 5, 7, 9)]


@pytest.mark.parametrize(
    ("plan", "first", "fits"),
    list(
        zip(
            SIZES,
            (
                "Datastore writes a second, without a warm-up",
                "Datastore writes a second, without a warm-up",
                "Datastore writes a second, without a warm-up",
                "Datastore writes a second, without a warm-up",
            ),
            (True, True, True, False),
            strict=True,
        )
    ),
    ids=lambda value: f"{value.votes:,}" if isinstance(value, scale.Plan) else "",
)
def test_it_says_which_limit_binds_first(plan: scale.Plan, first: str, fits: bool) -> None:
    assert (plan.binding.name, plan.fits) == (first, fits)


def test_more_votes_never_need_or_cost_less() -> None:
    needs = [(one.instances, one.partitions, one.workers, one.streams, one.warm_up_minutes) for one in SIZES]
    for less, more in pairwise(needs):
        assert all(a <= b for a, b in zip(less, more, strict=True))
    assert [one.dollars for one in SIZES] == sorted(one.dollars for one in SIZES)


def test_a_plan_stays_within_the_limits_of_a_poll() -> None:
    for votes in (999, 1_000, 48_000_000, 48_000_001, 768_000_000, 10**10):
        partitions = scale.plan(votes, 5, "us-central1").partitions
        assert partitions <= limits.PARTITIONS
        assert votes <= partitions * limits.VOTES_PER_PARTITION or partitions == limits.PARTITIONS


def test_a_poll_over_its_limit_does_not_fit_however_long_it_runs() -> None:
    most = limits.PARTITIONS * limits.VOTES_PER_PARTITION
    assert [scale.plan(votes, 44_640, "us-central1").fits for votes in (most, most + 1)] == [True, False]


def test_streams_are_as_few_as_keep_each_to_four_workers() -> None:
    for votes in (10**7, 10**8, 3 * 10**8, 7 * 10**8):
        one = scale.plan(votes, 5, "us-central1")
        assert one.workers <= 4 * one.streams
        assert one.streams <= one.partitions
    assert [scale.plan(votes, 5, "us-central1").streams for votes in (10**7, 48 * 10**6, 10**8)] == [1, 1, 2]


def test_what_more_streams_than_there_may_be_would_take_does_not_fit() -> None:
    bounds = {bound.name: bound.share for bound in scale.plan(10**10, 5, "us-central1").bounds}
    assert bounds["streams"] > 1


def test_a_dearer_region_costs_more_and_needs_the_same() -> None:
    here, there = (scale.plan(10**7, 5, region) for region in ("us-central1", "europe-west3"))
    assert there.dollars > here.dollars
    assert (there.workers, there.instances, there.partitions) == (here.workers, here.instances, here.partitions)


def test_a_region_has_one_tier_and_datastore_at_its_price_or_the_careful_side() -> None:
    assert len(prices.REGIONS) == 40
    assert {region.run for region in prices.REGIONS.values()} == {1, prices.TIER_2}
    unlisted = [region.datastore for region in prices.REGIONS.values() if not region.datastore_listed]
    assert set(unlisted) == {prices.DATASTORE_AT_MOST}
    assert prices.REGIONS["us-central1"] == prices.Region(run=1, datastore=1, datastore_listed=True)


@pytest.mark.parametrize("streams", [1, 2])
def test_the_code_does_what_the_model_says(streams: int) -> None:
    """At the rate of 100,000 votes in five minutes; `make bench ARGS=model` plays it to the end, folds included."""
    votes, minutes = 5_000, 0.25
    plan = scale.plan(votes, minutes, "us-central1")
    event = Event(votes=votes, minutes=minutes, instances=1, partitions=16, workers=plan.workers, streams=streams)
    found = play(event)
    assert (found.accepted, found.counted, found.refused) == (votes, votes, 0)
    assert found.messages == pytest.approx(plan.messages, rel=0.03)
    assert found.commits == pytest.approx(plan.commits, rel=0.1)
    assert found.writes == 2 * found.commits
    assert found.drain_seconds <= 2 * plan.drain_seconds


def test_over_the_quota_of_writes_votes_wait_and_none_is_lost() -> None:
    """The model says 48 writes a second, folds included: at 20 commits are refused, and the votes are counted later."""
    plan = scale.plan(100_000, 5, "us-central1")
    assert plan.writes / 300 > 20
    event = Event(votes=2_000, minutes=0.1, instances=1, partitions=16, workers=1, streams=1, first_quota=20)
    found = play(event)
    assert (found.accepted, found.counted) == (2_000, 2_000)
    assert found.refused > 0
    assert found.most_writes <= 20


def test_an_unlisted_region_takes_the_least_quota() -> None:
    shares = [
        bound.share
        for region in ("us-central1", "europe-north1")
        for bound in scale.plan(10**7, 5, region).bounds
        if bound.name == "bytes published a second"
    ]
    assert shares[1] == pytest.approx(20 * shares[0])


def test_the_page_shows_the_model_s_table() -> None:
    assert scale.table(SIZES) in Path(scale.__file__).with_name("SCALE.md").read_text()
