"""Measures pull queues: add_many, lease with complete, and calls of a task function, a second.

`python -m emulator exec -- .venv/bin/python -m tests.bench.queues`. A worker is a `PullQueue` with a backend of its
own, all of them in this process. Beside each figure stands the ceiling: what as many clients reach with the least that
any queue needs of the store, on rows that nobody shares: one insert of a batch; one query, one commit that takes it,
one that finishes it. Google's Datastore emulators read every entity of the kind for a query, so that their ceiling
falls with the entities: each row has a project of its own there.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from uuid import uuid4

import click

from emulator.local import local
from tally import config
from tally.bootstrap import World, open_backend, opened
from tally.clock import SECOND
from tally.config import Settings
from tally.ports import Query, Store, Write, pages
from tally.tasks import keys
from tally.tasks.deferred import Registry
from tally.tasks.pace import Bounds
from tally.tasks.queue import PullQueue
from tally.tasks.row import Row, change, done, from_entity, insert, leased, made
from tally.tasks.rows import chunks
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task
from tests.bench.measure import Figure, Outcome
from tests.bench.stage import Stage

SECTION = "queues"
BATCHES = (100, 1_000)
WORKERS = (1, 4)
_COMMIT = 250  # rows of one commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Tasks a second, added, and leased and completed."""

    added: float
    finished: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the queue does at a batch size and a number of workers, and the ceiling."""

    batch: int
    workers: int
    ours: Rates
    ceiling: Rates


async def run(stage: Stage) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as state, local("embedded", Path(state)) as here:
        figures = await _figures("emulator", stage.settings(), stage.votes(1_000, least=200))
        on_file = Stage(here=here, scale=stage.scale, repetitions=stage.repetitions).settings()
        figures += await _figures("embedded", on_file, stage.votes(4_000, least=400))
    for workers in WORKERS:
        ran = await measure_calls(stage.settings(), stage.votes(300, least=40), workers)
        figures.append(_figure(f"emulator: calls of a task function made, workers {workers}", ran.made_per_second))
        figures.append(_figure(f"emulator: calls of a task function run, workers {workers}", ran.ended_per_second))
    return Outcome(figures=tuple(figures))


async def _figures(backend: str, settings: Settings, tasks: int) -> list[Figure]:
    figures = []
    for row in await measure(settings, tasks):
        of = f"{row.batch} at a time, workers {row.workers}"
        for verb, ours, ceiling in (
            ("added", row.ours.added, row.ceiling.added),
            ("leased and completed", row.ours.finished, row.ceiling.finished),
        ):
            share = f"{ours / ceiling:.2f} of the ceiling, {ceiling:,.0f}"
            figures.append(replace(_figure(f"{backend}: {verb}, {of}", ours), note=share))
    return figures


def _figure(name: str, rate: float) -> Figure:
    return Figure(section=SECTION, name=name, unit="tasks/s", samples=(rate,))


async def measure(
    settings: Settings, tasks: int, batches: Sequence[int] = BATCHES, workers: Sequence[int] = WORKERS
) -> list[Measured]:
    """Return one row for each batch size, up to the tasks, and number of workers; at least a batch a worker is done."""
    rows = []
    for batch in (batch for batch in batches if batch <= tasks):
        for count in workers:
            each = max(1, tasks // count // batch) * batch
            rates = []
            for contender in (_ceiling, _ours):
                fresh = replace(settings, project=f"{settings.project}-{uuid4().hex[:6]}")
                async with AsyncExitStack() as stack:
                    stores = [(await stack.enter_async_context(opened(fresh))).store for _ in range(count)]
                    rates.append(await contender(stores, batch, each))
            rows.append(Measured(batch=batch, workers=count, ceiling=rates[0], ours=rates[1]))
    return rows


async def _ceiling(stores: Sequence[Store], batch: int, each: int) -> Rates:
    """Do as little as can be with rows of the same shape, each batch in a range of its own."""
    clock, random, name = World().clock, Random(), f"raw-{uuid4().hex[:8]}"
    ranges = [[f"{name}-{worker}-{number}" for number in range(each // batch)] for worker in range(len(stores))]

    async def commit(store: Store, writes: Sequence[Write]) -> list[int]:
        replies = await asyncio.gather(*(store.commit(part) for part in chunks(writes, _COMMIT)))
        return [version for reply in replies for version in reply.versions]

    async def put(store: Store, mine: Sequence[str]) -> None:
        for queue in mine:
            rows = [_row(queue, number, clock.now(), f"{random.getrandbits(128):032x}") for number in range(batch)]
            await commit(store, [write for row in rows for write in insert(row, b"")])

    async def take(store: Store, mine: Sequence[str]) -> None:
        for queue in mine:
            found = await _all_of(store, queue, batch)
            now = clock.now()
            taken = [(row, leased(row, token=name, now=now, until=now + 600 * SECOND)) for row in found]
            versions = await commit(store, change(taken))
            held = [replace(row, version=version) for (_, row), version in zip(taken, versions, strict=True)]
            await commit(store, change([(row, done(row, now=now, by=name)) for row in held]))

    start = time.perf_counter()
    await asyncio.gather(*(put(store, mine) for store, mine in zip(stores, ranges, strict=True)))
    added = time.perf_counter()
    await asyncio.gather(*(take(store, mine) for store, mine in zip(stores, ranges, strict=True)))
    total = each * len(stores)
    return Rates(added=total / (added - start), finished=total / (time.perf_counter() - added))


def _row(queue: str, number: int, now: int, name: str) -> Row:
    return made(Task.json({"n": number}), queue=queue, shards=1, now=now, added_by=name, nameless=name)


async def _all_of(store: Store, queue: str, batch: int) -> list[Row]:
    query = Query(kind=keys.TASK, filters=keys.due_range(queue, 0), limit=batch)
    found = [from_entity(entity) async for page in pages(store, query) for entity in page.entities]
    if len(found) != batch:
        raise RuntimeError(f"{len(found)} of {batch} rows were found")
    return found


async def _ours(stores: Sequence[Store], batch: int, each: int) -> Rates:
    name, world = f"bench-{uuid4().hex[:8]}", World()
    queues = [PullQueue(store, name, clock=world.clock, random=world.random) for store in stores]
    await queues[0].resume()  # makes the queue
    total, left = each * len(queues), each * len(queues)

    async def work(queue: PullQueue) -> None:
        nonlocal left
        while left and (leases := await queue.lease(batch, seconds=600)):
            finished = await queue.complete_many(leases)
            left -= finished.count("done")

    start = time.perf_counter()
    await asyncio.gather(*(_add(queue, batch, each) for queue in queues))
    added = time.perf_counter()
    await asyncio.gather(*(work(queue) for queue in queues))
    if left:
        raise RuntimeError(f"{left} of {total} tasks were not finished")
    return Rates(added=total / (added - start), finished=total / (time.perf_counter() - added))


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


async def _add(queue: PullQueue, batch: int, tasks: int) -> None:
    for start in range(0, tasks, batch):
        outcomes = await queue.add_many(Task.json({"n": n}) for n in range(start, min(start + batch, tasks)))
        if any(outcome.status != "added" for outcome in outcomes):
            raise RuntimeError(f"not all of {len(outcomes)} tasks were added")


@click.command()
@click.option("--tasks", default=4_000, show_default=True, help="Tasks of each row.")
@click.option("--calls", default=1_000, show_default=True, help="Calls of the task function.")
def main(tasks: int, calls: int) -> None:
    settings = config.load(os.environ)
    print("batch  workers  added/s  of the ceiling  leased and completed/s  of the ceiling")
    for row in asyncio.run(measure(settings, tasks)):
        print(
            f"{row.batch:5}  {row.workers:7}  {row.ours.added:7,.0f}  {row.ours.added / row.ceiling.added:14.2f}"
            f"  {row.ours.finished:22,.0f}  {row.ours.finished / row.ceiling.finished:14.2f}",
            flush=True,
        )
    for workers in WORKERS:
        ran = asyncio.run(measure_calls(settings, calls, workers))
        print(f"task function, workers {workers}: {ran.made_per_second:,.0f} made/s, {ran.ended_per_second:,.0f} run/s")


if __name__ == "__main__":
    main()
