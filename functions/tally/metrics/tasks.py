"""The metrics of task functions: fed by the events of their runs, and by the executor's looks at its queues."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from tally.clock import SECOND, Clock
from tally.metrics import instruments
from tally.tasks.events import Kind, RunEvent
from tally.tasks.executor import PullExecutor
from tally.tasks.middleware import Middleware
from tally.tasks.stats import QueueStats

OTHER = "other"  # stands for every name that this program does not know, so that callers make no new series
_QUEUE_GAUGES = (
    "tally.queue.tasks",
    "tally.queue.in.flight",
    "tally.queue.dead.letters",
    "tally.queue.oldest.age",
    "tally.queue.paused",
)


class TaskMetrics(Middleware):
    """Counts events of runs; `tasks` and `queues` are the names that may be labels."""

    def __init__(self, meter: Meter, tasks: Collection[str], queues: Collection[str]) -> None:
        self._tasks = tasks
        self._queues = queues
        self._attempts = instruments.counter(meter, "tally.task.attempts")
        self._letters = instruments.counter(meter, "tally.task.dead.letters")
        self._rescues = instruments.counter(meter, "tally.task.rescues")
        self._wait = instruments.histogram(meter, "tally.task.wait", instruments.LONG)
        self._run = instruments.histogram(meter, "tally.task.run", instruments.LONG)

    def happened(self, event: RunEvent) -> None:
        labels = {
            "queue": event.queue if event.queue in self._queues else OTHER,
            "task": event.task if event.task in self._tasks else OTHER,
        }
        if event.kind is Kind.STARTED:
            self._wait.record(event.waited, labels)
        elif event.kind is Kind.RESCUED:
            self._rescues.add(1, labels)
        elif event.kind is Kind.DEAD_LETTERED:
            self._letters.add(1, {**labels, "reason": event.reason})
        else:
            self._attempts.add(1, {**labels, "outcome": str(event.kind)})
            self._run.record(event.ran or 0.0, labels)


class QueueMetrics:
    """The numbers of a worker and its queues, as of the executor's last look."""

    def __init__(self, meter: Meter, executor: PullExecutor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._worker: Mapping[str, int] = {}
        self._queues: Mapping[str, Mapping[str, float]] = {}
        for name in _QUEUE_GAUGES:
            metric = instruments.get(name)
            meter.create_observable_gauge(name, [partial(self._of_queues, name)], metric.unit, metric.meaning)
        for name in ("tally.worker.tasks", "tally.worker.tasks.limit"):
            metric = instruments.get(name)
            meter.create_observable_gauge(name, [partial(self._of_worker, name)], metric.unit, metric.meaning)

    def sample(self) -> None:
        now = self._clock.now()
        self._queues = {queue: _numbers(stats, now) for queue, stats in self._executor.seen.items()}
        self._worker = {
            "tally.worker.tasks": self._executor.running,
            "tally.worker.tasks.limit": self._executor.limit,
        }

    def _of_queues(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(numbers[name], {"queue": queue}) for queue, numbers in self._queues.items()]

    def _of_worker(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._worker[name])] if self._worker else []


def _numbers(stats: QueueStats, now: int) -> dict[str, float]:
    late = 0 if stats.oldest_eta is None else max(0, now - stats.oldest_eta)
    values = (stats.tasks, stats.in_flight, stats.dead, late / SECOND, int(stats.paused))
    return dict(zip(_QUEUE_GAUGES, values, strict=True))
