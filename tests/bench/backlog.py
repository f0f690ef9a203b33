"""Large backlogs, held to every bound: votes that wait when a worker starts, and a full partition, loaded and folded.

Each runs in a process of its own, so that its memory is its own. On embedded and on the fakes: no emulator is needed.
"""

import asyncio
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emulator.local import local
from tally import bootstrap, limits
from tally.config import Settings
from tally.ports import Committed, Delete, Key, Lookup, Page, Query, Store, Write
from tally.testing.store import FakeStore, size
from tally.votes.counter import Counter
from tally.votes.ledger import SEGMENT_RECORDS, Full
from tally.votes.poll import Poll
from tally.votes.records import Records, ranks
from tally.votes.recount import recount
from tally.votes.worker import Worker
from tests.bench.measure import Budget, Outcome, Run, rates, single
from tests.bench.stage import Stage, Watch, alone, make_poll, make_votes, memory, opened, pack, publish, settled

SECTION = "backlog"
A_MESSAGE = 10
# The memory of the smallest worker that is deployed.
INSTANCE_BYTES = 512 * 1024 * 1024
SMALL_COMMITS, SMALL = 40, 10
_figure = partial(single, SECTION)


class _Bounded:
    """A store that notes the largest commit and lookup, and how much is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.commit_bytes = 0
        self.mutations = 0
        self.lookup_bytes = 0
        self.entities_read = 0
        self.deletes = 0

    async def get(self, keys: Sequence[Key]) -> Lookup:
        answer = await self._store.get(keys)
        self.entities_read += len(answer.found)
        self.lookup_bytes = max(self.lookup_bytes, sum(map(size, answer.found)))
        return answer

    async def commit(self, writes: Sequence[Write]) -> Committed:
        sizes = [size(write.entity) for write in writes if not isinstance(write, Delete)]
        self.commit_bytes = max(self.commit_bytes, sum(sizes))
        self.mutations = max(self.mutations, len(writes))
        self.deletes += len(writes) - len(sizes)
        return await self._store.commit(writes)

    async def query(self, query: Query) -> Page:
        return await self._store.query(query)


class _Drained(NamedTuple):
    run: Run
    wrong: int
    peak_bytes: int
    held: int
    held_bytes: int
    commit_bytes: int
    mutations: int


class _Loaded(NamedTuple):
    """Bytes a ballot: held, at the peak of the load, at the peak of the commits after it."""

    seconds: float
    wrong: int
    held: float
    load_peak: float
    commit_peak: float
    entities_read: int
    lookup_bytes: int
    commit_bytes: int
    mutations: int
    folded: int


async def run(stage: Stage) -> Outcome:
    votes = stage.votes(1_000_000, least=50_000)
    ballots = stage.votes(limits.BALLOTS_PER_PARTITION, least=1_500_000)  # so many that one lookup's memory is little
    if stage.quick:  # side by side: no budget is on their speed
        drained, loaded = await asyncio.gather(_waited(stage, votes), asyncio.to_thread(alone, _load, ballots))
    else:
        drained, loaded = await _waited(stage, votes), await asyncio.to_thread(alone, _load, ballots)
    waiting, full = f"{votes:,} votes waiting at the start", f"a partition of {ballots:,} ballots"
    bounds = (
        (f"{waiting}: lost or doubled", "votes", drained.wrong, 0),
        (f"{waiting}: peak memory", "bytes", drained.peak_bytes, INSTANCE_BYTES),
        (f"{waiting}: messages held", "messages", drained.held, limits.HELD_MESSAGES),
        (f"{waiting}: message bytes held", "bytes", drained.held_bytes, limits.HELD_BYTES),
        (f"{waiting}: largest commit", "bytes", drained.commit_bytes, limits.COMMIT_BYTES),
        (f"{waiting}: mutations of a commit", "mutations", drained.mutations, limits.COMMIT_MUTATIONS),
        (f"{full}: lost or doubled", "ballots", loaded.wrong, 0),
        (f"{full}: memory a ballot, loaded", "bytes", loaded.held, 40),
        (f"{full}: memory a ballot, peak of the load", "bytes", loaded.load_peak, 60),
        (f"{full}: memory a ballot, peak of commits and folds", "bytes", loaded.commit_peak, 60),
        (f"{full}: entities read by a load", "entities", loaded.entities_read, ballots / 35_000 + 64),
        (f"{full}: largest lookup", "bytes", loaded.lookup_bytes, limits.LOOKUP_BYTES),
        (f"{full}: largest commit", "bytes", loaded.commit_bytes, limits.COMMIT_BYTES),
        (f"{full}: mutations of a commit", "mutations", loaded.mutations, limits.COMMIT_MUTATIONS),
    )
    budgets = [
        Budget(name=name, figure=_figure(name, unit, value), bound=bound, at_most=True)
        for name, unit, value, bound in bounds
    ]
    folded = _figure(f"{full}: segments folded by {SMALL_COMMITS} small commits", "segments", loaded.folded)
    budgets.append(Budget(name=folded.name, figure=folded, bound=limits.FOLD_SEGMENTS // 2))
    return Outcome(
        figures=(
            rates(SECTION, waiting, "votes/s", [drained.run]),
            _figure(f"{full}: load", "ballots/s", ballots / loaded.seconds),
            *(budget.figure for budget in budgets),
        ),
        budgets=tuple(budgets),
    )


async def _waited(stage: Stage, votes: int) -> _Drained:
    """Publish votes to embedded before there is a worker, then start one."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as state, local("embedded", Path(state)) as here:
        own = Stage(here=here, scale=stage.scale, repetitions=1)
        settings = own.settings()
        backend = await opened(settings)
        poll = await make_poll(backend)
        for start in range(0, votes, 100_000):
            content = make_votes(poll, range(start, min(start + 100_000, votes)))
            await publish(backend, settings.topic, pack(content, A_MESSAGE))
        await backend.close()
        return await asyncio.to_thread(alone, _drain, settings, poll, votes)


def _drain(settings: Settings, poll: Poll, votes: int) -> _Drained:
    """Let a worker count votes that wait."""

    async def main() -> _Drained:
        backend = await bootstrap.open_backend(settings)
        backend.store = store = _Bounded(backend.store)
        worker = bootstrap.vote_worker(settings, backend, bootstrap.World())
        stop, seen = asyncio.Event(), _Held()
        watch = Watch(votes)
        running = asyncio.create_task(worker.run(stop))
        watching = asyncio.create_task(seen.watch(worker))
        await settled(worker, -(-votes // A_MESSAGE), seconds=600)
        run, peak = watch.stop(), memory("VmHWM")  # not ru_maxrss: that begins at what the parent had
        stop.set()
        await running
        watching.cancel()
        found = await recount(backend.store, poll)
        await backend.close()
        wrong = abs(len(found.records) - votes) + len(found.differences)
        return _Drained(run, wrong, peak, seen.messages, seen.size, store.commit_bytes, store.mutations)

    return asyncio.run(main())


class _Held:
    """The most that a worker was seen to hold."""

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0

    async def watch(self, worker: Worker) -> None:
        while True:
            self.messages = max(self.messages, len(worker._inbox.held))
            self.size = max(self.size, worker._inbox._bytes)
            await asyncio.sleep(0.01)


def _load(ballots: int) -> _Loaded:
    """Fill a partition but for a little; load it as a worker that starts, and fill it by small commits."""

    async def main() -> _Loaded:
        store = _Bounded(FakeStore())
        random = np.random.default_rng(1)
        rest = SMALL_COMMITS * SMALL
        await _fill(store, random, ballots - rest)
        store.entities_read = store.lookup_bytes = 0
        reader = _counter(store)
        tracemalloc.start()
        begun = time.monotonic()
        await reader.refresh()
        seconds = time.monotonic() - begun
        held, load_peak = tracemalloc.get_traced_memory()
        entities_read, wrong = store.entities_read, abs(reader.ballots - (ballots - rest))
        tracemalloc.reset_peak()
        for _ in range(SMALL_COMMITS):
            await reader.commit(_records(random, SMALL))
        _, commit_peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        again = _counter(store)
        await again.refresh()
        wrong += abs(again.ballots - ballots)
        if ballots == limits.BALLOTS_PER_PARTITION:
            wrong += await _takes_more(reader, random)
        return _Loaded(
            seconds=seconds,
            wrong=wrong,
            held=held / ballots,
            load_peak=load_peak / ballots,
            commit_peak=commit_peak / ballots,
            entities_read=entities_read,
            lookup_bytes=store.lookup_bytes,
            commit_bytes=store.commit_bytes,
            mutations=store.mutations,
            folded=store.deletes,
        )

    return asyncio.run(main())


async def _fill(store: Store, random: np.random.Generator, ballots: int) -> None:
    writer = _counter(store)
    await writer.refresh()
    while writer.ballots < ballots:
        await writer.commit(_records(random, min(SEGMENT_RECORDS, ballots - writer.ballots)))


async def _takes_more(counter: Counter, random: np.random.Generator) -> bool:
    try:
        await counter.commit(_records(random, 1))
    except Full:
        return False
    return True


def _counter(store: Store) -> Counter:
    return Counter(store, "p", 0, "keep", loads=asyncio.Semaphore(1), fold_from=limits.FOLD_SEGMENTS // 2)


def _records(random: np.random.Generator, count: int) -> Records:
    high, low = random.integers(0, 1 << 64, (2, count), np.uint64, endpoint=False)
    return Records(high, low, ranks(np.full(count, 1 << 40, np.uint64), np.arange(count) % 5))
