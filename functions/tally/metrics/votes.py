"""The metrics of votes: what the worker says of its health, as numbers, and how many votes were accepted."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from tally.metrics import instruments
from tally.votes.microbatch import MicroBatcher
from tally.votes.worker import Health

# Metric → the field of the worker's health that it shows; of a list its length.
_FIELDS = {
    "tally.votes.settled": "settled_votes",
    "tally.votes.messages.settled": "settled",
    "tally.votes.messages.held": "held",
    "tally.votes.letters": "dead_letters",
    "tally.votes.partitions": "partitions",
    "tally.votes.partitions.parked": "parked",
    "tally.votes.stuck": "stuck_seconds",
}
_HEALTHY = "tally.worker.healthy"


class WorkerMetrics:
    def __init__(self, meter: Meter, health: Callable[[], Health]) -> None:
        self._health = health
        self._seen: Mapping[str, int] = {}
        for name in (*_FIELDS, _HEALTHY):
            _observe(meter, name, partial(self._of, name))

    def sample(self) -> None:
        health = self._health()
        self._seen = {name: _number(health.body[field]) for name, field in _FIELDS.items()} | {_HEALTHY: int(health.ok)}

    def _of(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._seen[name])] if self._seen else []


def watch_intake(meter: Meter, batcher: MicroBatcher) -> None:
    """Count the votes that a server accepted."""
    _observe(meter, "tally.votes.accepted", lambda _: [Observation(batcher.durable_votes)])


def _observe(meter: Meter, name: str, callback: Callable[[CallbackOptions], Iterable[Observation]]) -> None:
    metric = instruments.get(name)
    create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
    create(name, [callback], metric.unit, metric.meaning)


def _number(value: object) -> int:
    if isinstance(value, list):
        return len(value)
    assert isinstance(value, int), f"{value!r} is no number"
    return value
