from itertools import pairwise
from pathlib import Path

import pytest

from tally import limits
from tally.votes import prices, scale
from tally.votes.deployment import (
    CODE_GIB,
    CONCURRENCY,
    LARGEST_WORKER,
    LEDGER_SHARE,
    MAX_INSTANCES,
    WORKER_GIB,
    WorkerSize,
)
from tally.votes.ledger import SEGMENT_RECORDS
from tally.votes.microbatch import LINGER_SECONDS
from tally.votes.poll import default_partitions
from tally.votes.stream import LINGER_SECONDS_AT_MOST
from tests.event import Event, play

SIZES = [scale.plan(10**power, 5, "us-central1") for power in (3, 5, 7, 9)]


@pytest.mark.parametrize(
    ("plan", "first", "fits"),
    [(size, "Datastore writes a second, cold", size.votes < 10**9) for size in SIZES],
    ids=lambda value: f"{value.votes:,}" if isinstance(value, scale.Plan) else "",
)
def test_it_says_which_limit_binds_first(plan: scale.Plan, first: str, fits: bool) -> None:
    assert (plan.binding.name, plan.fits) == (first, fits)


def test_more_votes_never_need_or_cost_less() -> None:
    needs = [(one.instances, one.partitions, one.workers, one.streams, one.warm_up_minutes) for one in SIZES]
    for less, more in pairwise(needs):
        assert all(a <= b for a, b in zip(less, more, strict=True))
    assert [one.dollars for one in SIZES] == sorted(one.dollars for one in SIZES)


def test_partitions_are_those_that_the_poll_makes_of_its_expected_votes() -> None:
    for votes in (1, 999, 1_000, 48_000_000, 48_000_001, 768_000_000):
        assert scale.plan(votes, 60, "us-central1").partitions == default_partitions(votes)


def test_a_rush_gets_as_many_partitions_as_commit_a_second_of_twice_its_rate() -> None:
    one = scale.plan(40_000_000, 1, "us-central1")
    (records,) = (bound for bound in one.bounds if bound.name == "records of one commit")
    assert one.partitions > default_partitions(one.votes)
    assert records.share <= 1 / scale.BURST
    assert scale.plan(10**9, 0.5, "us-central1").partitions == limits.PARTITIONS


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


def test_streams_are_as_many_as_keep_a_worker_within_the_largest_there_is() -> None:
    slow = scale.plan(700_000_000, 44_640, "us-central1")
    assert (slow.streams, slow.deployment.workers) == (2, 1)
    assert slow.ledger_bytes <= slow.deployment.worker.ledger_bytes <= LARGEST_WORKER.ledger_bytes


def test_a_peak_takes_the_sizes_of_its_rate_and_the_memory_of_all_votes() -> None:
    whole, rush = scale.plan(10**7, 180, "us-central1", peak=45), scale.plan(5 * 10**6, 2, "us-central1")
    assert whole.votes_per_second == pytest.approx(rush.votes_per_second)
    assert (whole.instances, whole.streams, whole.workers) == (rush.instances, rush.streams, rush.workers)
    assert whole.ledger_bytes == 2 * rush.ledger_bytes
    assert whole.messages == pytest.approx(2 * rush.messages)


def test_a_peak_costs_what_stands_ready_for_it() -> None:
    even, peaked = (scale.plan(10**7, 180, "us-central1", peak=peak) for peak in (1, 45))
    assert peaked.dollars > even.dollars
    assert [cost.dollars for cost in peaked.costs if cost.part == "Datastore"] == [
        pytest.approx(cost.dollars) for cost in even.costs if cost.part == "Datastore"
    ]


def test_what_is_deployed_holds_the_ledger_wherever_the_bound_says_so() -> None:
    for power in range(13):
        one = scale.plan(10**power, 5, "us-central1")
        (ledger,) = (bound for bound in one.bounds if bound.name == "bytes of ledger in a worker")
        assert (one.ledger_bytes <= one.deployment.worker.ledger_bytes) == (ledger.share <= 1)


def test_a_small_event_takes_the_sizes_that_are_deployed_anyway() -> None:
    deployed = scale.plan(1_000, 5, "us-central1").deployment
    assert (deployed.streams, deployed.workers, deployed.worker) == (1, 1, WorkerSize(1, WORKER_GIB))
    assert (deployed.instances, deployed.max_instances, deployed.concurrency) == (1, MAX_INSTANCES, CONCURRENCY)


def test_instances_at_most_leave_room_for_a_burst() -> None:
    deployed = scale.plan(10**7, 5, "us-central1").deployment
    assert (deployed.instances, deployed.max_instances) == (34, 68)


def test_a_longer_linger_takes_more_requests_at_once() -> None:
    assert [scale.plan(votes, 5, "us-central1").deployment.concurrency for votes in (10**7, 10**9)] == [250, 500]


def test_the_cost_is_of_the_workers_that_are_deployed() -> None:
    one = scale.plan(10**9, 5, "us-central1")
    (workers,) = (cost.dollars for cost in one.costs if cost.part == "workers")
    a_second = prices.POOL_VCPU + 3.5 * prices.POOL_GIB
    assert (one.workers, one.deployment.worker) == (88, WorkerSize(1, 3.5))
    assert workers == pytest.approx(88 * (5 + scale.WARM_MINUTES) * 60 * a_second)


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
    event = Event(
        votes=votes, minutes=minutes, instances=1, partitions=16, workers=plan.deployment.workers, streams=streams
    )
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


PAGE = " ".join(Path(scale.__file__).with_name("SCALE.md").read_text().split())


def test_the_page_shows_the_model_s_table() -> None:
    assert " ".join(scale.table(SIZES).split()) in PAGE


def stream_takes(votes_per_message: int) -> float:
    """Return the votes a second that keep all workers of one stream at work, in bursts of twice as many."""
    a_vote = scale.WORKER_SECONDS_PER_MESSAGE / votes_per_message + scale.WORKER_SECONDS_PER_VOTE
    return scale.WORKERS_PER_STREAM / scale.BURST / a_vote


def at_least(value: float, step: int) -> str:
    return f"{int(value // step * step):,}"


MOST, LARGEST = SIZES[-1], SIZES[-2]
BOUNDS = {bound.name: bound for bound in MOST.bounds}


@pytest.mark.parametrize(
    "words",
    [
        f"| {scale.VOTES_PER_INSTANCE_SECOND:,} single votes a second for each instance of 1 vCPU, twice that",
        f"while it is open, at most {scale.VOTES_PER_MESSAGE} | {LINGER_SECONDS * 1000:g} ms a stream",
        f"| {scale.WORKER_SECONDS_PER_MESSAGE * 1e6:g} µs a message and"
        f" {scale.WORKER_SECONDS_PER_VOTE * 1e6:g} µs a vote of one core, half",
        f"{SEGMENT_RECORDS:,} records each at most",
        f"| {scale.RAMP_START} writes a second on a cold kind, then half as many again each"
        f" {scale.RAMP_MINUTES} minutes",
        f"| {scale.LEDGER_BYTES_PER_VOTE} bytes a ballot in a worker's memory",
        f"| {LEDGER_SHARE} of what it has above {CODE_GIB} GiB is ledger; {LARGEST_WORKER.memory_gib:g} GiB with"
        f" {LARGEST_WORKER.vcpu} vCPU at most, which leave {LARGEST_WORKER.ledger_bytes / 1e9:.1f} GB |",
        f"{scale.LARGE_REGIONS['us-central1'] // 10**9} GB/s published in large regions, else"
        f" {scale.PUBSUB_BYTES_PER_SECOND // 10**6} MB/s",
        f"| {scale.VCPUS_PER_REGION:,} vCPU of functions and workers in a region",
        f"| {scale.LOG_BYTES:,} bytes for each request",
        f"times {prices.TIER_2} in Cloud Run's second tier; Datastore times {prices.DATASTORE_AT_MOST} where",
        f"(${prices.ARMOR_REQUESTS * 1e6:g} for a million requests)",
        f"about {at_least(stream_takes(4), 10_000)} votes a second at 4 votes a message",
        f"the same four workers take {at_least(stream_takes(100), 100_000)} a second",
        f"up to {LINGER_SECONDS_AT_MOST * 1000:g} ms, so that messages",
        f"{LARGEST.instances} instances have to be there before it",
        f"`max_instances` is {MAX_INSTANCES}.",
        f"({MOST.workers} workers commit each of {MOST.partitions} partitions up to four times a second:"
        f" {MOST.warm_up_minutes} minutes of warm-up",
        f"{MOST.instances:,} instances and their workers' vCPU,"
        f" {BOUNDS['vCPU of Cloud Run in a region'].share:.1f} times the quota",
        f"{limits.PARTITIONS} partitions of {limits.VOTES_PER_PARTITION:,} expected ballots are"
        f" {scale.MOST_VOTES_PER_POLL // 10**6} million, so it wants two polls",
        f"{MOST.streams} of {limits.STREAMS}. Past that",
        f"{at_least(MOST.messages_per_second, 100_000)} publishes a second",
    ],
)
def test_the_page_s_words_have_the_code_s_numbers(words: str) -> None:
    assert words in PAGE


def test_the_binding_limits_of_the_page_are_in_their_order() -> None:
    over = sorted((bound for bound in MOST.bounds if bound.share > 1), key=lambda bound: -bound.share)
    assert [bound.name.split()[0] for bound in over] == ["Datastore", "vCPU", "votes"]
    assert MOST.polls == 2
