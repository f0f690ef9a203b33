"""The metrics of one process, put together: what is watched, and where it is to be read."""

import asyncio
import logging
from collections.abc import Collection

from tally.clock import Clock
from tally.metrics.exposition import CONTENT_TYPE, Exposition
from tally.metrics.log import LogMetrics
from tally.metrics.ports import TimedBackend
from tally.metrics.tasks import QueueMetrics, TaskMetrics
from tally.metrics.votes import WorkerMetrics, watch_intake
from tally.ports import Backend
from tally.tasks.deferred import Registry
from tally.tasks.executor import PullExecutor
from tally.votes.microbatch import MicroBatcher
from tally.votes.worker import Worker

SAMPLE_SECONDS = 5.0


class Telemetry:
    """Counts log lines from its making to its `close`; `exporters` as in `Exposition`."""

    content_type = CONTENT_TYPE

    def __init__(self, exporters: str = "") -> None:
        self._exposition = Exposition(exporters)
        self._log = LogMetrics(self._exposition.meter)
        logging.getLogger("tally").addHandler(self._log)

    def text(self) -> bytes:
        """Return what `/metrics` answers; on the event loop."""
        return self._exposition.text()

    def timed(self, backend: Backend) -> Backend:
        """Return the backend with a stopwatch on its ports."""
        return TimedBackend(backend, self._exposition.meter)

    def watch_worker(self, worker: Worker) -> None:
        self._exposition.sampled_by(WorkerMetrics(self._exposition.meter, worker.health).sample)

    def watch_intake(self, batcher: MicroBatcher) -> None:
        watch_intake(self._exposition.meter, batcher)

    def watch_tasks(self, registry: Registry, queues: Collection[str]) -> None:
        """Count what happens to runs of the registry's functions."""
        registry.use(TaskMetrics(self._exposition.meter, registry.functions, queues))

    def watch_queues(self, executor: PullExecutor, clock: Clock) -> None:
        self._exposition.sampled_by(QueueMetrics(self._exposition.meter, executor, clock).sample)

    async def run(self) -> None:
        """Sample until cancelled, for exporters that ask at times of their own."""
        while True:
            self._exposition.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    def close(self) -> None:
        logging.getLogger("tally").removeHandler(self._log)
        self._exposition.close()
