"""The ledger: writes and RPCs a commit with several workers, cold start, recount, memory a ballot."""

import asyncio
import gc
import os
import re
import time
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from tally import bootstrap
from tally.ports import Backend
from tally.votes.counter import Counter
from tally.votes.ledger import Partition
from tally.votes.poll import Poll
from tally.votes.records import Records, absorb, ranks
from tally.votes.recount import recount
from tests.bench.measure import Budget, Figure, Outcome, single
from tests.bench.meter import MeteredStore
from tests.bench.stage import Stage, alone, counted, make_poll, make_votes, memory, opened, pack, publish, until

SECTION = "ledger"
RATE = 10_000
_figure = partial(single, SECTION)


async def run(stage: Stage) -> Outcome:
    seconds = max(4, int(12 * stage.scale))
    figures, budgets = list[Figure](), list[Budget]()
    bounds = {1: 1.05, 2: 2.5, 4: 2.5}
    # Side by side, each with a subscription and a poll of its own: what is counted depends on rates and not on speed.
    found = await asyncio.gather(*(_steady(stage, workers, seconds) for workers in bounds))
    for (workers, bound), (rpcs, writes) in zip(bounds.items(), found, strict=True):
        figure = _figure(f"RPCs a commit, {workers} workers", "RPCs", rpcs)
        figures.append(figure)
        budgets.append(Budget(name=f"RPCs a commit at {workers} workers", figure=figure, bound=bound, at_most=True))
        if workers == 1:
            figure = _figure(f"entity writes per 1,000 votes at {RATE:,} votes/s", "writes", writes)
            figures.append(figure)
            budgets.append(Budget(name="entity writes per 1,000 votes", figure=figure, bound=5, aim=4, at_most=True))
    backend = await opened(stage.settings())
    ballots = stage.votes(1_000_000)
    poll = await _filled(backend, ballots)
    figures.append(
        _figure(f"cold start of a partition of {ballots:,} ballots", "ballots/s", await _cold(backend, poll))
    )
    begun = time.perf_counter()
    assert not (await recount(backend.store, poll)).differences
    figures.append(_figure("recount", "ballots/s", ballots / (time.perf_counter() - begun)))
    await backend.close()
    with mock.patch.dict(os.environ, _allocator()):
        loaded, peak = await asyncio.to_thread(alone, _memory, 1_000_000)
    for name, value, bound in (("loaded", loaded, 40), ("at the peak", peak, 60)):
        figure = _figure(f"memory a ballot, {name}", "bytes", value)
        figures.append(figure)
        budgets.append(Budget(name=f"worker memory a ballot, {name}", figure=figure, bound=bound, at_most=True))
    return Outcome(figures=tuple(figures), budgets=tuple(budgets))


async def _steady(stage: Stage, workers: int, seconds: int) -> tuple[float, float]:
    """Publish RATE votes a second to workers on one subscription; return RPCs a commit, writes per 1,000 votes."""
    settings = stage.settings()
    backend = await opened(settings)
    poll = await make_poll(backend)
    stop = asyncio.Event()
    backend.store = meter = MeteredStore(backend.store)
    running = [
        asyncio.create_task(bootstrap.vote_worker(settings, backend, bootstrap.World()).run(stop))
        for _ in range(workers)
    ]
    await _send(backend, settings.topic, poll, 0, 2)
    meter.reset()
    await _send(backend, settings.topic, poll, 2 * RATE, seconds)
    rpcs, commits, writes = meter.ledger_rpcs, meter.commits, meter.usage.writes

    async def all_counted() -> bool:
        return await counted(backend, poll) >= (2 + seconds) * RATE

    await until(all_counted, pause=0.2)
    stop.set()
    await asyncio.gather(*running)
    await backend.close()
    return rpcs / commits, writes / (seconds * RATE / 1_000)


async def _send(backend: Backend, topic: str, poll: Poll, first: int, seconds: int) -> None:
    """Publish RATE votes a second, in ten parts of messages of 25 votes."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    part = RATE // 10
    for tick in range(seconds * 10):
        start = first + tick * part
        await publish(backend, topic, pack(make_votes(poll, range(start, start + part)), 25))
        await asyncio.sleep(begun + (tick + 1) / 10 - loop.time())


def _records(count: int) -> Records:
    words = np.random.default_rng(1).integers(0, 2**64 - 1, (2, count), np.uint64)
    at = np.full(count, time.time_ns() // 1_000, np.uint64)
    return Records(words[0], words[1], ranks(at, np.arange(count) % 5))


async def _filled(backend: Backend, ballots: int) -> Poll:
    """Return a poll of one partition that has this many ballots, in the segments that a busy worker leaves."""
    poll = await make_poll(backend, partitions=1)
    counter, everything = _counter(backend, poll), _records(ballots)
    for start in range(0, ballots, 30_000):
        await counter.refresh()
        await counter.commit(everything[slice(start, start + 30_000)])
    return poll


def _counter(backend: Backend, poll: Poll) -> Counter:
    return Counter(backend.store, poll.id, 0, "keep", loads=asyncio.Semaphore(1), fold_from=32)


async def _cold(backend: Backend, poll: Poll) -> float:
    begun = time.perf_counter()
    counter = _counter(backend, poll)
    await counter.refresh()
    return counter.ballots / (time.perf_counter() - begun)


def _allocator() -> dict[str, str]:
    """Return how the worker's image sets the allocator."""
    image = (Path(__file__).parents[2] / "infra/Dockerfile").read_text()
    return dict(re.findall(r"^ENV (MALLOC_\w+)=(\S+)$", image, re.MULTILINE))


def _memory(ballots: int) -> tuple[float, float]:
    """Return bytes a ballot that this process takes to count into one partition: loaded, and at the peak."""
    absorb((), _records(1_000), 1, "keep")
    before = memory("VmRSS")
    held = Partition()
    for start in range(0, ballots, 10_000):
        words = np.random.default_rng(start).integers(0, 2**64 - 1, (3, 10_000), np.uint64)
        held = Partition(runs=absorb(held.runs, Records(words[0], words[1], words[2]), start + 1, "keep"))
    gc.collect()
    return (memory("VmRSS") - before) / ballots, (memory("VmHWM") - before) / ballots
