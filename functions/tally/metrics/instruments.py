"""Every metric, in one table: name, kind, unit, labels, what it counts. The README's table is made from it.

Names are OpenTelemetry's; Prometheus has `_` for `.`, and ends with `_seconds` or `_total`. No label has a value that a
caller chooses: no poll, voter or run; `task` and `queue` are names that the program knows, or `other`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from opentelemetry.metrics import Counter, Histogram, Meter

Kind = Literal["counter", "gauge", "histogram"]
# Seconds: of calls between processes, and of tasks and the time that they wait.
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
LONG = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0)


class Metric(NamedTuple):
    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def prometheus(self) -> str:
        """Return the name in the text that `/metrics` answers."""
        unit = "_seconds" if self.unit == "s" else ""
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")


TABLE = (
    Metric("tally.events", "counter", "{event}", ("action", "severity"), "lines of the structured log"),
    Metric("tally.calls", "histogram", "s", ("port", "operation", "outcome"), "calls of the store and of Pub/Sub"),
    Metric("tally.worker.healthy", "gauge", "", (), "1 while `/health` answers 200"),
    Metric("tally.votes.accepted", "counter", "{vote}", (), "votes whose message is durable (`tally serve`)"),
    Metric("tally.votes.settled", "counter", "{vote}", (), "votes that a commit holds, copies included"),
    Metric("tally.votes.refused", "counter", "{vote}", ("reason",), "votes that became dead letters"),
    Metric("tally.votes.messages.settled", "counter", "{message}", (), "messages whose votes are all settled"),
    Metric("tally.votes.messages.held", "gauge", "{message}", (), "messages that the worker holds"),
    Metric("tally.votes.letters", "counter", "{message}", (), "dead letters published"),
    Metric("tally.votes.partitions", "gauge", "{partition}", (), "partitions in memory"),
    Metric("tally.votes.partitions.parked", "gauge", "{partition}", (), "partitions that failed too often and wait"),
    Metric("tally.votes.stuck", "gauge", "s", (), "how long nothing has moved although messages are held"),
    Metric("tally.task.attempts", "counter", "{attempt}", ("queue", "task", "outcome"), "attempts that ended"),
    Metric("tally.task.dead.letters", "counter", "{task}", ("queue", "task", "reason"), "calls that were parked"),
    Metric("tally.task.rescues", "counter", "{attempt}", ("queue", "task"), "attempts taken over from silent workers"),
    Metric("tally.task.wait", "histogram", "s", ("queue", "task"), "from when an attempt was due to its start"),
    Metric("tally.task.run", "histogram", "s", ("queue", "task"), "from an attempt's start to its end"),
    Metric("tally.worker.tasks", "gauge", "{task}", (), "tasks that this worker holds"),
    Metric("tally.worker.tasks.limit", "gauge", "{task}", (), "how many it would hold by the backlog"),
    Metric("tally.queue.tasks", "gauge", "{task}", ("queue",), "tasks that wait or run"),
    Metric("tally.queue.in.flight", "gauge", "{task}", ("queue",), "tasks that are leased"),
    Metric("tally.queue.dead.letters", "gauge", "{task}", ("queue",), "dead letters of the queue itself"),
    Metric("tally.queue.oldest.age", "gauge", "s", ("queue",), "how long the first task is past its time"),
    Metric("tally.queue.paused", "gauge", "", ("queue",), "1 while the queue is paused"),
)
_BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in TABLE}


def get(name: str) -> Metric:
    return _BY_NAME[name]


def counter(meter: Meter, name: str) -> Counter:
    metric = get(name)
    return meter.create_counter(name, metric.unit, metric.meaning)


def histogram(meter: Meter, name: str, bounds: tuple[float, ...]) -> Histogram:
    metric = get(name)
    return meter.create_histogram(name, metric.unit, metric.meaning, explicit_bucket_boundaries_advisory=bounds)
