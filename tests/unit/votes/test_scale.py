from itertools import pairwise
from pathlib import Path

import pytest

from tally import limits
from tally.votes import scale

SIZES = [scale.plan(10**power, 5, "us-central1") for power in (3, 5, 7, 9)]


@pytest.mark.parametrize(
    ("plan", "first", "fits"),
    list(
        zip(
            SIZES,
            (
                "Datastore writes a second, without a warm-up",
                "Datastore writes a second, without a warm-up",
                "workers of one stream",
                "workers of one stream",
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
