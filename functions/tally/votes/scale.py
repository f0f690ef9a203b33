"""What an event needs: so many votes, in so many minutes. A rate model, pure; SCALE.md says what it rests on.

Each bound says how much of a limit the event takes; the one that takes most binds first. Above 1 it does not fit as it
is, and the bound says what helps. Sizes are for the busiest minute, and bear bursts of BURST times its rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log
from typing import NamedTuple

from tally import limits
from tally.votes import prices
from tally.votes.deployment import (
    CONCURRENCY,
    CONCURRENCY_AT_MOST,
    FUNCTION_GIB,
    GIB,
    LARGEST_WORKER,
    MAX_INSTANCES,
    REQUEST_LOG_SHARE,
    Deployment,
    worker_size,
)
from tally.votes.ledger import SEGMENT_RECORDS
from tally.votes.poll import default_partitions
from tally.votes.results import SHARED_SECONDS
from tally.votes.stream import linger_seconds

# Assumed of the pipeline, on the careful side of what was measured.
BURST = 2
VOTES_PER_INSTANCE_SECOND = 1_000  # half of what an instance bears, or less
VOTES_PER_MESSAGE = 4
PUBLISH_SECONDS = 0.05
WORKER_SECONDS_PER_MESSAGE = 40e-6
WORKER_SECONDS_PER_VOTE = 2e-6
ANSWER_BYTES = 400
LOG_BYTES = 1_000  # Cloud Run's own log entry of a request
LEDGER_BYTES_PER_VOTE = 40
COMMITS_PER_PARTITION_SECOND = 1
WRITES_PER_COMMIT = 3  # the shard, the segment, and sooner or later the delete of the segment, when it is folded
MOST_VOTES_PER_POLL = limits.PARTITIONS * limits.VOTES_PER_PARTITION

# Limits that are not ours; the quotas can be raised.
WORKERS_PER_STREAM = 4
VCPUS_PER_REGION = 1_000
RAMP_START, RAMP_STEP, RAMP_MINUTES = 500, 1.5, 5
PUBSUB_BYTES_PER_SECOND = 200_000_000
LARGE_REGIONS = {"us-central1": 4_000_000_000, "us-east1": 4_000_000_000, "europe-west1": 4_000_000_000}
WARM_MINUTES = 10


class Bound(NamedTuple):
    """`need` of what `most` is the limit; `name` says of what, with its unit; `way_out` what helps above it."""

    name: str
    need: float
    most: float
    way_out: str

    @property
    def share(self) -> float:
        return self.need / self.most


class Cost(NamedTuple):
    part: str
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`votes_per_second` are those of the busiest minute, `peak` times the mean; so are
    `messages_per_second` and `writes_per_second`. `workers` are those of all `streams`, of which the busiest keeps
    `busy_workers` at work; `ledger_bytes`: in each. `polls`: as few as take so many votes; the rest of the plan is as
    if one did. `messages`, `commits` and `writes` (of entities, deletes included) are those of the whole event;
    `drain_seconds`: from the last vote to its count."""

    votes: int
    minutes: float
    region: str
    peak: float
    votes_per_second: float
    instances: int
    partitions: int
    workers: int
    streams: int
    busy_workers: float
    ledger_bytes: int
    deployment: Deployment
    polls: int
    warm_up_minutes: int
    messages_per_second: float
    writes_per_second: float
    messages: float
    commits: float
    writes: float
    drain_seconds: float

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return tuple(_bounds(self))

    @property
    def costs(self) -> tuple[Cost, ...]:
        return tuple(_costs(self, prices.REGIONS[self.region]))

    @property
    def binding(self) -> Bound:
        return max(self.bounds, key=lambda bound: bound.share)

    @property
    def fits(self) -> bool:
        return self.binding.share <= 1

    @property
    def dollars(self) -> float:
        return sum(cost.dollars for cost in self.costs)


class _Flow(NamedTuple):
    """What so many streams make of a rate: messages a second, and workers that the busiest stream keeps at work."""

    streams: int
    messages: float
    workers: float


def plan(votes: int, minutes: float, region: str, peak: float = 1) -> Plan:
    """Plan an event of one poll; `region` is one of `prices.REGIONS`; the busiest minute has `peak` times the mean."""
    seconds = minutes * 60
    rate = peak * votes / seconds
    instances = ceil(rate / VOTES_PER_INSTANCE_SECOND)
    partitions = _partitions(votes, rate)
    flow = _flow(votes, rate, instances, partitions)
    streams, messages = flow.streams, flow.messages
    ledger = _ledger(votes, partitions, streams)
    deployment = Deployment(
        streams=streams,
        workers=min(WORKERS_PER_STREAM, ceil(flow.workers)),
        worker=worker_size(ledger),
        instances=instances,
        max_instances=max(MAX_INSTANCES, BURST * instances),
        concurrency=_concurrency(streams),
    )
    most = partitions * COMMITS_PER_PARTITION_SECOND * deployment.workers
    writes = min(messages, most) * WRITES_PER_COMMIT
    commits = min(messages / peak, most) * seconds
    return Plan(
        votes=votes,
        minutes=minutes,
        region=region,
        peak=peak,
        votes_per_second=rate,
        instances=instances,
        partitions=partitions,
        workers=streams * deployment.workers,
        streams=streams,
        busy_workers=flow.workers,
        ledger_bytes=ceil(ledger),
        deployment=deployment,
        polls=ceil(votes / MOST_VOTES_PER_POLL),
        warm_up_minutes=RAMP_MINUTES * max(0, ceil(log(writes / RAMP_START, RAMP_STEP))),
        messages_per_second=messages,
        writes_per_second=writes,
        messages=messages / peak * seconds,
        commits=commits,
        writes=commits * WRITES_PER_COMMIT,
        drain_seconds=1 / COMMITS_PER_PARTITION_SECOND,
    )


def _partitions(votes: int, rate: float) -> int:
    """Return what the poll takes by itself, or more: then a burst of a second still fits into a commit of each."""
    a_commit = SEGMENT_RECORDS * COMMITS_PER_PARTITION_SECOND
    return min(int(limits.PARTITIONS), max(default_partitions(votes), ceil(BURST * rate / a_commit)))


def _flow(votes: int, rate: float, instances: int, partitions: int) -> _Flow:
    """Return the fewest streams of which none needs more workers than may share it, or larger ones than there are;
    else as many as there may be."""
    for streams in range(1, limits.STREAMS + 1):
        # The vote that opens a batch, and those that come to the same stream's while it is open.
        votes_per_message = min(VOTES_PER_MESSAGE, 1 + rate / instances * linger_seconds(streams) / streams)
        messages = rate / votes_per_message
        busy = BURST * (messages * WORKER_SECONDS_PER_MESSAGE + rate * WORKER_SECONDS_PER_VOTE)
        flow = _Flow(streams, messages, busy * _share(partitions, streams))
        if flow.workers <= WORKERS_PER_STREAM and _ledger(votes, partitions, streams) <= LARGEST_WORKER.ledger_bytes:
            break
    return flow


def _concurrency(streams: int) -> int:
    """Return how many requests an instance has at once in a burst, in steps of the default."""
    at_once = BURST * VOTES_PER_INSTANCE_SECOND * (linger_seconds(streams) + PUBLISH_SECONDS)
    return min(CONCURRENCY_AT_MOST, CONCURRENCY * ceil(at_once / CONCURRENCY))


def _ledger(votes: int, partitions: int, streams: int) -> float:
    """Return the bytes of ledger that each worker of the fullest stream keeps."""
    return votes * LEDGER_BYTES_PER_VOTE * _share(partitions, streams)


def _share(partitions: int, streams: int) -> float:
    """Return which part of the partitions the fullest stream has."""
    return ceil(partitions / streams) / partitions


def _bounds(one: Plan) -> Iterator[Bound]:
    rate, polls = one.votes_per_second, "several polls, their results added up"
    vcpus = rate / VOTES_PER_INSTANCE_SECOND + one.workers * one.deployment.worker.vcpu
    yield Bound("vCPU of Cloud Run in a region", vcpus, VCPUS_PER_REGION, "ask Google for a higher quota")
    streams = one.streams * one.busy_workers / WORKERS_PER_STREAM
    yield Bound("streams", streams, int(limits.STREAMS), "clients that send lists: larger messages")
    yield Bound("votes of one poll", one.votes, MOST_VOTES_PER_POLL, polls)
    records = rate / one.partitions / COMMITS_PER_PARTITION_SECOND
    yield Bound("records of one commit", records, SEGMENT_RECORDS, polls)
    sent = one.messages_per_second * prices.PUBSUB_LEAST_BYTES
    most = LARGE_REGIONS.get(one.region, PUBSUB_BYTES_PER_SECOND)
    yield Bound("bytes published a second", sent, most, "ask Google for a higher quota, or take a large region")
    warm_up = f"rehearsals for {one.warm_up_minutes} minutes before it"
    yield Bound("Datastore writes a second, cold", one.writes_per_second, RAMP_START, warm_up)
    yield Bound("bytes of ledger in a worker", one.ledger_bytes, LARGEST_WORKER.ledger_bytes, polls)


def _costs(one: Plan, region: prices.Region) -> Iterator[Cost]:
    votes, deployed, warm = one.votes, one.deployment, WARM_MINUTES * 60
    busy = votes / VOTES_PER_INSTANCE_SECOND
    idle = deployed.instances * (one.seconds + warm) - busy
    served = busy * (prices.SERVED_VCPU + FUNCTION_GIB * prices.SERVED_GIB) + idle * (1 + FUNCTION_GIB) * prices.IDLE
    yield Cost("function", served * region.run + votes * prices.REQUESTS)
    yield Cost("Pub/Sub", 2 * one.messages * prices.PUBSUB_LEAST_BYTES * prices.PUBSUB_BYTE)
    worker = deployed.worker.vcpu * prices.POOL_VCPU + deployed.worker.memory_gib * prices.POOL_GIB
    yield Cost("workers", one.workers * (one.seconds + warm) * worker * region.run)
    yield Cost("Datastore", one.commits * (2 * prices.WRITE + prices.DELETE) * region.datastore)
    reads = one.instances / SHARED_SECONDS * one.partitions * one.seconds
    yield Cost("results, watched all the time", reads * prices.READ * region.datastore)
    stored = 2 * votes * LEDGER_BYTES_PER_VOTE / GIB * prices.STORED_GIB
    yield Cost("ledger, a month", stored * region.datastore)
    yield Cost("answers to the internet", votes * ANSWER_BYTES / GIB * prices.EGRESS_GIB)
    yield Cost("Cloud Run's log of requests", request_log_dollars(votes, REQUEST_LOG_SHARE))


def request_log_dollars(requests: float, share: float) -> float:
    """Return what Cloud Run's log of so many requests costs, where a share of it is kept."""
    return requests * share * LOG_BYTES / GIB * prices.LOG_GIB


def table(plans: list[Plan]) -> str:
    """Return a Markdown table, one row a plan."""
    head = "| votes | a second | instances | partitions | streams | workers | each | warm-up | cost | binds first |"
    return "\n".join([head, "|--:" * 9 + "|--|", *map(_row, plans)])


def _row(one: Plan) -> str:
    first = f"{one.binding.name}, {one.binding.share:.0%}"
    numbers = (one.votes, round(one.votes_per_second), one.instances, one.partitions, one.streams, one.workers)
    size = one.deployment.worker
    each = f"{size.vcpu} vCPU, {size.memory_gib:g} GiB"
    cells = [*(f"{number:,}" for number in numbers), each, f"{one.warm_up_minutes} min", f"${one.dollars:,.2f}", first]
    return f"| {' | '.join(cells)} |"
