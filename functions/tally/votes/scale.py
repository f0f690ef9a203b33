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
from tally.votes.poll import default_partitions
from tally.votes.stream import linger_seconds

# Assumed of the pipeline, on the careful side of what was measured.
VOTES_PER_INSTANCE_SECOND = 1_000
VOTES_PER_MESSAGE = 4
WORKER_SECONDS_PER_MESSAGE = 40e-6
WORKER_SECONDS_PER_VOTE = 2e-6
WORKER_LOAD = 0.5  # a worker that is busy half of its time takes a burst of twice the rate
ANSWER_BYTES = 400
LEDGER_BYTES_PER_VOTE = 40
COMMITS_PER_PARTITION_SECOND = 1
WRITES_PER_COMMIT = 3  # the shard, the segment, and sooner or later the delete of the segment, when it is folded

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
    """`workers` are those of all `streams`; `memory`: bytes of ledger in each. `messages`, `commits` and `writes` (of
    entities, deletes included) are those of the whole event; `drain_seconds`: from the last vote to its count."""

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
    messages: float
    commits: float
    writes: float
    drain_seconds: float
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


class _Flow(NamedTuple):
    """What so many streams make of a rate: messages a second, and workers that the busiest stream keeps at work."""

    streams: int
    messages: float
    workers: float


def plan(votes: int, minutes: float, region: str) -> Plan:
    """Plan an event of one poll; `region` is one of `prices.REGIONS`."""
    seconds = minutes * 60
    rate = votes / seconds
    instances = ceil(rate / VOTES_PER_INSTANCE_SECOND)
    partitions = min(int(limits.PARTITIONS), max(default_partitions(votes), ceil(votes / limits.VOTES_PER_PARTITION)))
    flow = _flow(rate, instances, partitions)
    streams, messages = flow.streams, flow.messages
    rivals = min(WORKERS_PER_STREAM, ceil(flow.workers))
    workers = streams * rivals
    commits = min(messages, partitions * COMMITS_PER_PARTITION_SECOND * rivals)
    writes = commits * WRITES_PER_COMMIT
    memory = votes * LEDGER_BYTES_PER_VOTE * _share(partitions, streams)
    return Plan(
        votes=votes,
        minutes=minutes,
        region=region,
        votes_per_second=rate,
        instances=instances,
        partitions=partitions,
        workers=workers,
        streams=streams,
        memory=ceil(memory),
        warm_up_minutes=RAMP_MINUTES * max(0, ceil(log(writes / RAMP_START, RAMP_STEP))),
        messages=messages * seconds,
        commits=commits * seconds,
        writes=writes * seconds,
        drain_seconds=1 / COMMITS_PER_PARTITION_SECOND,
        bounds=_bounds(votes, region, rate, flow, partitions, writes, memory),
        costs=tuple(_costs(votes, minutes, messages, commits, workers, memory, prices.REGIONS[region])),
    )


def _flow(rate: float, instances: int, partitions: int) -> _Flow:
    """Return the fewest streams of which none needs more workers than may share it; else as many as there may be."""
    for streams in range(1, limits.STREAMS + 1):
        # The vote that opens a batch, and those that come to the same stream's while it is open.
        votes_per_message = min(VOTES_PER_MESSAGE, 1 + rate / instances * linger_seconds(streams) / streams)
        messages = rate / votes_per_message
        busy = (messages * WORKER_SECONDS_PER_MESSAGE + rate * WORKER_SECONDS_PER_VOTE) / WORKER_LOAD
        flow = _Flow(streams, messages, busy * _share(partitions, streams))
        if flow.workers <= WORKERS_PER_STREAM:
            break
    return flow


def _bounds(
    votes: int, region: str, rate: float, flow: _Flow, partitions: int, writes: float, memory: float
) -> tuple[Bound, ...]:
    published = LARGE_REGIONS.get(region, PUBSUB_BYTES_PER_SECOND)
    return (
        Bound("function instances in a region", rate / VOTES_PER_INSTANCE_SECOND, INSTANCES),
        Bound("streams", flow.streams * flow.workers / WORKERS_PER_STREAM, int(limits.STREAMS)),
        Bound("votes of one poll", votes, limits.PARTITIONS * limits.VOTES_PER_PARTITION),
        Bound("records of one commit", rate / partitions / COMMITS_PER_PARTITION_SECOND, SEGMENT_RECORDS),
        Bound("bytes published a second", flow.messages * prices.PUBSUB_LEAST_BYTES, published),
        Bound("Datastore writes a second, without a warm-up", writes, RAMP_START),
        Bound("bytes of ledger in a worker", memory, WORKER_MEMORY),
    )


def _share(partitions: int, streams: int) -> float:
    """Return which part of the partitions the fullest stream has."""
    return ceil(partitions / streams) / partitions


def _costs(
    votes: int, minutes: float, messages: float, commits: float, workers: int, memory: float, region: prices.Region
) -> Iterator[Cost]:
    seconds = minutes * 60
    served = votes / VOTES_PER_INSTANCE_SECOND * region.run
    yield Cost("function", served * (prices.SERVED_VCPU + 0.5 * prices.SERVED_GIB) + votes * prices.REQUESTS)
    yield Cost("Pub/Sub", 2 * messages * seconds * prices.PUBSUB_LEAST_BYTES * prices.PUBSUB_BYTE)
    gib = 0.5 + memory / 2**30
    pool = workers * (minutes + WARM_MINUTES) * 60 * (prices.POOL_VCPU + gib * prices.POOL_GIB)
    yield Cost("workers", pool * region.run)
    yield Cost("Datastore", commits * seconds * (2 * prices.WRITE + prices.DELETE) * region.datastore)
    stored = 2 * votes * LEDGER_BYTES_PER_VOTE / 2**30 * prices.STORED_GIB
    yield Cost("ledger, a month", stored * region.datastore)
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
