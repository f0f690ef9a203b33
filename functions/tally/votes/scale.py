"""What an event needs: so many votes, evenly, in so many minutes. A rate model, pure; SCALE.md says what it rests on.

Each bound says how much of a limit the event takes; the one that takes most binds first. Above 1 it does not fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log
from typing import NamedTuple

from tally import limits
from tally.votes import prices
from tally.votes.ledger import SEGMENT_RECORDS
from tally.votes.microbatch import LINGER_SECONDS
from tally.votes.poll import default_partitions

# Assumed of the pipeline, on the careful side of what was measured.
VOTES_PER_INSTANCE_SECOND = 1_000
VOTES_PER_MESSAGE = 4
WORKER_SECONDS_PER_MESSAGE = 40e-6
WORKER_SECONDS_PER_VOTE = 2e-6
WORKER_LOAD = 0.5  # a worker that is busy half of its time takes a burst of twice the rate
ANSWER_BYTES = 400
LEDGER_BYTES_PER_VOTE = 40
COMMITS_PER_PARTITION_SECOND = 1

# Limits that are not ours; the quotas can be raised.
WORKERS_PER_STREAM = 4
INSTANCES = 1_000
WORKER_MEMORY = 32 * 2**30
RAMP_START, RAMP_STEP, RAMP_MINUTES = 500, 1.5, 5
PUBSUB_BYTES_PER_SECOND = 200_000_000
LARGE_REGIONS = {"us-central1": 4_000_000_000, "us-east1": 4_000_000_000, "europe-west1": 4_000_000_000}
WARM_MINUTES = 10


class Bound(NamedTuple):
    """`need` of what `most` is the limit; `name` says of what, with its unit."""

    name: str
    need: float
    most: float

    @property
    def share(self) -> float:
        return self.need / self.most


class Cost(NamedTuple):
    part: str
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`streams`: sets of topic, subscription and workers; only one is built. `memory`: bytes of ledger a worker."""

    votes: int
    minutes: float
    region: str
    votes_per_second: float
    instances: int
    partitions: int
    workers: int
    streams: int
    memory: int
    warm_up_minutes: int
    bounds: tuple[Bound, ...]
    costs: tuple[Cost, ...]

    @property
    def binding(self) -> Bound:
        return max(self.bounds, key=lambda bound: bound.share)

    @property
    def fits(self) -> bool:
        return self.binding.share <= 1

    @property
    def dollars(self) -> float:
        return sum(cost.dollars for cost in self.costs)


def plan(votes: int, minutes: float, region: str) -> Plan:
    """Plan an event of one poll."""
    seconds = minutes * 60
    rate = votes / seconds
    instances = ceil(rate / VOTES_PER_INSTANCE_SECOND)
    messages = rate / max(1.0, min(VOTES_PER_MESSAGE, rate / instances * LINGER_SECONDS))
    busy = (messages * WORKER_SECONDS_PER_MESSAGE + rate * WORKER_SECONDS_PER_VOTE) / WORKER_LOAD
    workers = ceil(busy)
    streams = ceil(busy / WORKERS_PER_STREAM)
    partitions = min(int(limits.PARTITIONS), max(default_partitions(votes), ceil(votes / limits.VOTES_PER_PARTITION)))
    rivals = min(WORKERS_PER_STREAM, ceil(workers / streams))
    commits = min(messages, partitions * COMMITS_PER_PARTITION_SECOND * rivals)
    writes = 2 * commits + commits / 2  # the shard, the segment; a fold deletes what it took in
    memory = votes * LEDGER_BYTES_PER_VOTE // streams
    bounds = (
        Bound("function instances in a region", rate / VOTES_PER_INSTANCE_SECOND, INSTANCES),
        Bound("workers of one stream", busy, WORKERS_PER_STREAM),
        Bound("votes of one poll", votes, limits.PARTITIONS * limits.VOTES_PER_PARTITION),
        Bound("records of one commit", rate / partitions / COMMITS_PER_PARTITION_SECOND, SEGMENT_RECORDS),
        Bound(
            "bytes published a second",
            messages * prices.PUBSUB_LEAST_BYTES,
            LARGE_REGIONS.get(region, PUBSUB_BYTES_PER_SECOND),
        ),
        Bound("Datastore writes a second, without a warm-up", writes, RAMP_START),
        Bound("bytes of ledger in a worker", memory, WORKER_MEMORY),
    )
    return Plan(
        votes=votes,
        minutes=minutes,
        region=region,
        votes_per_second=rate,
        instances=instances,
        partitions=partitions,
        workers=workers,
        streams=streams,
        memory=memory,
        warm_up_minutes=RAMP_MINUTES * max(0, ceil(log(writes / RAMP_START, RAMP_STEP))),
        bounds=bounds,
        costs=tuple(_costs(votes, minutes, messages, commits, workers, memory)),
    )


def _costs(votes: int, minutes: float, messages: float, commits: float, workers: int, memory: int) -> Iterator[Cost]:
    seconds = minutes * 60
    served = votes / VOTES_PER_INSTANCE_SECOND
    yield Cost("function", served * (prices.SERVED_VCPU + 0.5 * prices.SERVED_GIB) + votes * prices.REQUESTS)
    yield Cost("Pub/Sub", 2 * messages * seconds * prices.PUBSUB_LEAST_BYTES * prices.PUBSUB_BYTE)
    gib = 0.5 + memory / 2**30
    pool = workers * (minutes + WARM_MINUTES) * 60 * (prices.POOL_VCPU + gib * prices.POOL_GIB)
    yield Cost("workers", pool)
    yield Cost("Datastore", commits * seconds * (2 * prices.WRITE + prices.DELETE / 2))
    yield Cost("ledger, a month", 2 * votes * LEDGER_BYTES_PER_VOTE / 2**30 * prices.STORED_GIB)
    yield Cost("answers to the internet", votes * ANSWER_BYTES / 2**30 * prices.EGRESS_GIB)


def table(plans: list[Plan]) -> str:
    """Return a Markdown table, one row a plan."""
    head = "| votes | a second | instances | partitions | workers | streams | warm-up | cost | binds first |"
    return "\n".join([head, "|--:" * 8 + "|--|", *map(_row, plans)])


def _row(one: Plan) -> str:
    first = f"{one.binding.name}, {one.binding.share:.0%}"
    numbers = (one.votes, round(one.votes_per_second), one.instances, one.partitions, one.workers, one.streams)
    cells = [*(f"{number:,}" for number in numbers), f"{one.warm_up_minutes} min", f"${one.dollars:,.2f}", first]
    return f"| {' | '.join(cells)} |"
