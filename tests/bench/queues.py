"""Measures pull queues on a Datastore emulator: add_many, and lease with complete, in tasks a second.

`python -m emulator exec -- .venv/bin/python -m tests.bench.queues`. Each row has a queue of its own; a worker is a
`PullQueue` with a backend of its own, all of them in this process.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import click

from tally import config
from tally.bootstrap import World, open_backend, pull_queues
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task

BATCHES = (100, 1_000)
WORKERS = (1, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Tasks a second at a batch size and a number of workers; `seconds` is how long each part took."""

    batch: int
    workers: int
    tasks: int
    added_per_second: float
    finished_per_second: float
    seconds: float


async def measure(tasks: int, batches: Sequence[int] = BATCHES, workers: Sequence[int] = WORKERS) -> list[Row]:
    """Return one row for each batch size and number of workers."""
    settings = config.load(os.environ)
    backends = [await open_backend(settings) for _ in range(max(workers))]
    try:
        rows = []
        for batch in batches:
            for count in workers:
                name = f"bench-{uuid4().hex[:8]}"
                queues = [pull_queues(backend, World())(name) for backend in backends[:count]]
                rows.append(await _row(queues, batch, tasks))
        return rows
    finally:
        for backend in backends:
            await backend.close()


async def _row(queues: Sequence[PullQueue], batch: int, tasks: int) -> Row:
    await queues[0].resume()  # makes the queue
    start = time.perf_counter()
    await asyncio.gather(*(_add(queue, batch, tasks // len(queues)) for queue in queues))
    added = time.perf_counter()
    finished = sum(await asyncio.gather(*(_work(queue, batch) for queue in queues)))
    end = time.perf_counter()
    if finished != tasks // len(queues) * len(queues):
        raise RuntimeError(f"{finished} of {tasks} tasks were finished")
    return Row(
        batch=batch,
        workers=len(queues),
        tasks=finished,
        added_per_second=finished / (added - start),
        finished_per_second=finished / (end - added),
        seconds=end - start,
    )


async def _add(queue: PullQueue, batch: int, tasks: int) -> None:
    for start in range(0, tasks, batch):
        outcomes = await queue.add_many(Task.json({"n": n}) for n in range(start, min(start + batch, tasks)))
        if any(outcome.status != "added" for outcome in outcomes):
            raise RuntimeError(f"not all of {len(outcomes)} tasks were added")


async def _work(queue: PullQueue, batch: int) -> int:
    finished = 0
    while leases := await queue.lease(batch, seconds=600):
        finished += (await queue.complete_many(leases)).count("done")
    return finished


@click.command()
@click.option("--tasks", default=4_000, show_default=True, help="Tasks of each row.")
def main(tasks: int) -> None:
    print("batch  workers  added/s  leased and completed/s")
    for row in asyncio.run(measure(tasks)):
        print(f"{row.batch:5}  {row.workers:7}  {row.added_per_second:7,.0f}  {row.finished_per_second:22,.0f}")


if __name__ == "__main__":
    main()
