"""Pull queues: add_many, lease with complete, and calls of a task function, a second.

A worker is a `PullQueue` with a backend of its own, all of them in this process. Beside each figure stands its share of
the ceiling: of what as many clients reach with the least that any queue needs of the store, on rows that nobody shares:
one insert of a batch; one query, one commit that takes it, one that finishes it. Google's Datastore emulators read
every entity of the kind for a query, so that their ceiling falls with the entities: each run has a project of its own.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import uuid4

from emulator.local import local
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
from tests.bench.measure import Figure, Outcome, alternate
from tests.bench.stage import Stage

SECTION = "queues"
BATCHES = (100, 1_000)
WORKERS = (1, 4)
_COMMIT = 250  # rows of one commit


class Rates(NamedTuple):
    """Tasks a second: added, or calls made; leased and completed, or calls run."""

    added: float
    finished: float


Contender = Callable[[Sequence[Store], int, int], Awaitable[Rates]]


async def run(stage: Stage) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as state, local("embedded", Path(state)) as here:
        figures = await _figures("emulator", stage, stage.votes(1_000, least=400))
        figures += await _figures("embedded", replace(stage, here=here), stage.votes(4_000, least=400))
    calls = stage.votes(300, least=40)
    for workers in WORKERS:
        runs = [await _calls(stage.settings(), calls, workers) for _ in range(stage.repetitions)]
        for verb, samples in zip(("made", "run"), zip(*runs, strict=True), strict=True):
            name = f"emulator: calls of a task function {verb}, workers {workers}"
            figures.append(Figure(section=SECTION, name=name, unit="tasks/s", samples=samples))
    return Outcome(figures=tuple(figures))


async def _figures(backend: str, stage: Stage, tasks: int) -> list[Figure]:
    """Compare the queue with the ceiling, at each batch size and number of workers for which there are tasks enough."""
    figures = []
    await _compared(stage.settings(), _ceiling, BATCHES[0], BATCHES[0], 1)  # nobody's turn is the store's first
    for batch, workers in product(BATCHES, WORKERS):
        each = tasks // workers // batch * batch
        if not each:
            continue
        contenders = {
            name: partial(_compared, stage.settings(), contender, batch, each, workers)
            for name, contender in (("ceiling", _ceiling), ("ours", _ours))
        }
        found = await alternate(stage.repetitions, contenders)
        for column, verb in enumerate(("added", "leased and completed")):
            ours, ceiling = ([rates[column] for rates in found[name]] for name in ("ours", "ceiling"))
            figures.append(_figure(f"{backend}: {verb}, {batch} at a time, workers {workers}", ours, ceiling))
    return figures


def _figure(name: str, ours: Sequence[float], ceiling: Sequence[float]) -> Figure:
    share = statistics.median(one / other for one, other in zip(ours, ceiling, strict=True))
    note = f"{share:.2f} of the ceiling, {statistics.median(ceiling):,.0f}"
    return Figure(section=SECTION, name=name, unit="tasks/s", samples=tuple(ours), note=note)


async def _compared(settings: Settings, contender: Contender, batch: int, each: int, workers: int) -> Rates:
    fresh = replace(settings, project=f"{settings.project}-{uuid4().hex[:6]}")
    async with AsyncExitStack() as stack:
        stores = [(await stack.enter_async_context(opened(fresh))).store for _ in range(workers)]
        return await contender(stores, batch, each)


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
    total, left, ended = each * len(queues), each * len(queues), 0.0

    async def work(queue: PullQueue) -> None:
        nonlocal left, ended
        while left and (leases := await queue.lease(batch, seconds=600)):
            finished = await queue.complete_many(leases)
            left -= finished.count("done")
            ended = time.perf_counter()

    start = time.perf_counter()
    await asyncio.gather(*(_add(queue, batch, each) for queue in queues))
    added = time.perf_counter()
    await asyncio.gather(*(work(queue) for queue in queues))
    if left:
        raise RuntimeError(f"{left} of {total} tasks were not finished")
    return Rates(added=total / (added - start), finished=total / (ended - added))


async def _calls(settings: Settings, calls: int, workers: int, at_once: int = 50) -> Rates:
    """Make calls of an empty task function, `at_once` at a time, then run them to their results on a pull queue.

    Each worker runs as many at once; one process does all.
    """
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
        return Rates(added=calls / (made - start), finished=calls / (end - made))
    finally:
        for backend in backends:
            await backend.close()


async def _add(queue: PullQueue, batch: int, tasks: int) -> None:
    for start in range(0, tasks, batch):
        outcomes = await queue.add_many(Task.json({"n": n}) for n in range(start, min(start + batch, tasks)))
        if any(outcome.status != "added" for outcome in outcomes):
            raise RuntimeError(f"not all of {len(outcomes)} tasks were added")
