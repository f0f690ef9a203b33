"""What each example costs a month at list prices: `python -m infra.costs` prints the tables of the deployment README.

A model, not a bill: what it assumes stands here, and no free tier or discount is taken off.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tally.votes.deployment import REQUEST_LOG_SHARE
from tally.votes.prices import (
    ALERT,
    ARMOR_POLICY,
    ARMOR_REQUESTS,
    ARMOR_RULE,
    BALANCED_GIB,
    DELETE,
    EGRESS_GIB,
    FORWARDING_HOUR,
    IDLE,
    IMAGE_GIB,
    JOB_GIB,
    JOB_VCPU,
    KEY_VERSION,
    POOL_GIB,
    POOL_VCPU,
    PUBSUB_BYTE,
    PUBSUB_LEAST_BYTES,
    READ,
    REQUESTS,
    SCHEDULE,
    SERVED_GIB,
    SERVED_VCPU,
    STORED_GIB,
    WRITE,
)
from tally.votes.scale import (
    ANSWER_BYTES,
    COMMITS_PER_PARTITION_SECOND,
    LEDGER_BYTES_PER_VOTE,
    VOTES_PER_INSTANCE_SECOND,
    VOTES_PER_MESSAGE,
    request_log_dollars,
)

MONTH_SECONDS = 730 * 3600


class Line(NamedTuple):
    part: str
    counted: str
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A month: `hours` in which `votes_per_minute` come, and what stands ready all the time."""

    title: str
    votes_per_minute: int
    hours: float
    partitions: int
    results_per_second: int
    min_instances: int
    alerts: int = 7
    workers: int = 0
    worker_vcpu: int = 1
    worker_gib: float = 0.5
    runs: int = 0
    load_balancer: bool = False

    @property
    def votes(self) -> float:
        return self.votes_per_minute * 60 * self.hours

    @property
    def seconds(self) -> float:
        return self.hours * 3600


LOADS = {
    "smallest": Load(
        title="10,000 votes a month in five hours, counted once an hour by the job",
        votes_per_minute=34,
        hours=5,
        partitions=1,
        results_per_second=1,
        min_instances=0,
        runs=730,
    ),
    "evening": Load(
        title="four evenings of three hours at 100,000 votes a minute: 72 million votes",
        votes_per_minute=100_000,
        hours=12,
        partitions=16,
        results_per_second=20,
        min_instances=1,
        workers=1,
        worker_gib=2,
    ),
    "national": Load(
        title="one vote of an hour at 1,000,000 votes a minute: 60 million votes",
        votes_per_minute=1_000_000,
        hours=1,
        partitions=20,
        results_per_second=200,
        min_instances=10,
        workers=2,
        worker_vcpu=2,
        worker_gib=8,
        load_balancer=True,
    ),
}


def lines(load: Load) -> Iterator[Line]:
    """Yield what is paid for, part by part."""
    if load.runs:
        seconds = load.runs * 60
        cost = seconds * (load.worker_vcpu * JOB_VCPU + load.worker_gib * JOB_GIB)
        yield Line("Worker job", f"{load.runs} runs of a minute", cost)
        yield Line("Schedule", "one", SCHEDULE)
    if load.workers:
        cost = load.workers * MONTH_SECONDS * (load.worker_vcpu * POOL_VCPU + load.worker_gib * POOL_GIB)
        size = f"{load.worker_vcpu} vCPU, {load.worker_gib:g} GiB"
        yield Line("Worker pool", f"{load.workers} × {size}, all month", cost)
    if load.min_instances:
        cost = load.min_instances * MONTH_SECONDS * 1.5 * IDLE
        yield Line("Function instances kept warm", f"{load.min_instances} × 1 vCPU, 0.5 GiB", cost)
    served = load.votes / VOTES_PER_INSTANCE_SECOND
    yield Line("Function at work", f"{served:,.0f} instance seconds", served * (SERVED_VCPU + 0.5 * SERVED_GIB))
    requests = load.votes + load.results_per_second * load.seconds
    yield Line("Requests", f"{requests:,.0f}", requests * REQUESTS)
    messages = load.votes / VOTES_PER_MESSAGE
    yield Line("Pub/Sub", f"{messages:,.0f} messages, in and out", 2 * messages * PUBSUB_LEAST_BYTES * PUBSUB_BYTE)
    writes = 2 * load.partitions * COMMITS_PER_PARTITION_SECOND * load.seconds
    reads = load.results_per_second * load.partitions * load.seconds
    yield Line("Datastore writes", f"{writes:,.0f}, and half as many deletes", writes * WRITE + writes / 2 * DELETE)
    yield Line("Datastore reads", f"{reads:,.0f}", reads * READ)
    stored = load.votes * LEDGER_BYTES_PER_VOTE / 2**30
    yield Line("Ledger", f"{stored:,.2f} GiB, kept twice", 2 * stored * STORED_GIB)
    sent = requests * ANSWER_BYTES / 2**30
    yield Line("Answers to the internet", f"{sent:,.1f} GiB", sent * EGRESS_GIB)
    logged = requests * REQUEST_LOG_SHARE
    yield Line("Log of requests", f"{logged:,.0f}, a sample", request_log_dollars(requests, REQUEST_LOG_SHARE))
    if load.load_balancer:
        cost = 730 * FORWARDING_HOUR + 2 * sent * BALANCED_GIB
        yield Line("Load balancer", "one rule, all month", cost)
        yield Line("Cloud Armor", "one policy, two rules", ARMOR_POLICY + 2 * ARMOR_RULE + requests * ARMOR_REQUESTS)
    yield Line("Alerts, key, images", f"{load.alerts} conditions", load.alerts * ALERT + KEY_VERSION + 2 * IMAGE_GIB)


def table(load: Load) -> str:
    """Return the Markdown table of a month."""
    found = list(lines(load))
    rows = [f"| {line.part} | {line.counted} | {line.dollars:,.2f} |" for line in found]
    total = sum(line.dollars for line in found)
    return "\n".join(["| part | counted | $ a month |", "|--|--|--:|", *rows, f"| **all** | | **{total:,.2f}** |"])


def main() -> None:
    for name, load in LOADS.items():
        sys.stdout.write(f"**{name}**: {load.title}\n\n{table(load)}\n\n")


if __name__ == "__main__":
    main()
