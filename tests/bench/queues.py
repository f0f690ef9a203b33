"""Measures pull queues on a Datastore emulator: add_many, lease with complete, and calls of a task function, a second.

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
from tally.config import Settings
from tally.tasks.deferred import Registry
from tally.tasks.pace import Bounds
from tally.tasks.queue import PullQueue
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task
from tests.bench.measure import Figure, Outcome
from tests.bench.stage import Stage

SECTION = "queues"
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


async def run(stage: Stage) -> Outcome:
    found = list[tuple[str, float]]()
    for row in await measure(stage.settings(), stage.votes(4_000, least=400)):
        of = f"{row.batch} at a time, workers {row.workers}"
        found += [(f"added, {of}", row.added_per_second), (f"leased and completed, {of}", row.finished_per_second)]
    for workers in WORKERS:
        ran = await measure_calls(stage.settings(), stage.votes(1_000, least=200), workers)
        found.append((f"calls of a task function made, workers {workers}", ran.made_per_second))
        found.append((f"calls of a task function run, workers {workers}", ran.ended_per_second))
    figures = (Figure(section=SECTION, name=name, unit="tasks/s", samples=(rate,)) for name, rate in found)
    return Outcome(figures=tuple(figures))


async def measure(
    settings: Settings, tasks: int, batches: Sequence[int] = BATCHES, workers: Sequence[int] = WORKERS
) -> list[Row]:
    """Return one row for each batch size and number of workers."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Calls of an empty task function a second: made `at_once` at a time, then run by workers of as many each."""

    calls: int
    workers: int
    made_per_second: float
    ended_per_second: float


async def measure_calls(settings: Settings, calls: int, workers: int = 1, at_once: int = 50) -> Calls:
    """Make calls of a task function, then run them to their results on a pull queue; one process does all."""
    backends = [await open_backend(settings) for _ in range(workers)]
    try:
        registry, world, queue = Registry(), World(), f"bench-{uuid4().hex[:8]}"
        systems = [
            TaskSystem(registry, backend.store, clock=world.clock, random=world.random, worker=f"worker-{number}")
            for number, backend in enumerate(backends)
        ]
        registry.connect(systems[0].tasks)
        ended = 0

        @registry.task("bench.nothing", queue=queue)
        async def nothing(number: int) -> int:
            nonlocal ended
            ended += 1
            return number

        async def make(first: int) -> None:
            for number in range(first, calls, at_once):
                await nothing.call(number)

        start = time.perf_counter()
        await asyncio.gather(*(make(first) for first in range(at_once)))
        made = time.perf_counter()
        bounds = Bounds(at_least=at_once, at_most=at_once)
        executors = [system.executor({queue: 1}, bounds=bounds) for system in systems]
        await asyncio.gather(*(executor.run(asyncio.Event(), until_empty=True) for executor in executors))
        end = time.perf_counter()
        if ended < calls:
            raise RuntimeError(f"{ended} of {calls} calls have run")
        return Calls(
            calls=calls,
            workers=workers,
            made_per_second=calls / (made - start),
            ended_per_second=calls / (end - made),
        )
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
@click.option("--calls", default=1_000, show_default=True, help="Calls of the task function.")
def main(tasks: int, calls: int) -> None:
    settings = config.load(os.environ)
    print("batch  workers  added/s  leased and completed/s")
    for row in asyncio.run(measure(settings, tasks)):
        print(f"{row.batch:5}  {row.workers:7}  {row.added_per_second:7,.0f}  {row.finished_per_second:22,.0f}")
    for workers in WORKERS:
        ran = asyncio.run(measure_calls(settings, calls, workers))
        print(f"task function, workers {workers}: {ran.made_per_second:,.0f} made/s, {ran.ended_per_second:,.0f} run/s")


if __name__ == "__main__":
    main()
