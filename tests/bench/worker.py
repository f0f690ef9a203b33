"""The worker beside raw pull and ack of the same messages, at several votes a message, and in several processes."""

import asyncio
import gc
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import msgspec

from emulator.process import Process
from tally import bootstrap, collector, config
from tally.ports import Backend, Outgoing
from tally.votes.poll import Poll
from tally.votes.worker import Worker
from tests.bench.measure import Budget, Figure, Outcome, Run, alternate, group_cpu, rates, ratio
from tests.bench.stage import Stage, Watch, counted, make_poll, make_votes, opened, pack, publish, until

SECTION = "worker"
PULLS = 4
PROCESSES = (1, 2, 4)
_LONG_ENOUGH = 1.5
LASTING = 100_000  # votes, one a message, that keep a worker busy for longer


class Course(NamedTuple):
    """How many messages were settled when, and µs of CPU a vote.

    `steady`: from how many to how many the worker went while there were more to pull.
    """

    marks: Sequence[tuple[float, int]]
    cpu: float
    steady: tuple[int, int] = (0, 0)

    def over(self, stretch: tuple[int, int], size: int) -> Run:
        """Return the votes a second on the way from so many messages to so many."""
        (begin, first), (end, last) = (next(mark for mark in self.marks if mark[1] >= count) for count in stretch)
        return Run(size * (last - first) / (end - begin), self.cpu)


async def run(stage: Stage) -> Outcome:
    single, raw = await _side_by_side(stage, LASTING, 1)
    others = () if stage.quick else await _others(stage, 300_000)
    processes = await _processes(stage, 800_000 if stage.quick else 1_600_000)  # seconds, of which a lane's is one
    to_raw = ratio(SECTION, "1 vote a message ÷ raw pull and ack", single, raw)
    two = ratio(SECTION, "two workers ÷ one", processes[2], processes[1])
    figures = (
        rates(SECTION, "raw pull and ack, 1 vote a message", "votes/s", raw),
        rates(SECTION, "worker, 1 vote a message", "votes/s", single),
        to_raw,
        *others,
        *(
            rates(SECTION, f"{number} worker process{'es' * (number > 1)}, 100 votes a message", "votes/s", runs)
            for number, runs in processes.items()
        ),
        two,
    )
    budgets = (
        Budget(name="worker, one vote a message ÷ raw pull+ack", figure=to_raw, bound=0.75, aim=0.9),
        Budget(name="two workers on one subscription ÷ one", figure=two, bound=0.9, aim=1.2),
    )
    return Outcome(figures=figures, budgets=budgets)


async def _others(stage: Stage, votes: int) -> Sequence[Figure]:
    """Measure the other sizes of a message, to which no budget holds."""
    hundred, raw = await _side_by_side(stage, votes, 100)
    sizes = {10: votes // 3, 1_000: 2 * votes}
    runs = await alternate(
        stage.repetitions, {f"{size:,}": partial(ours, stage, number, size) for size, number in sizes.items()}
    )
    return (
        rates(SECTION, "raw pull and ack, 100 votes a message", "votes/s", raw),
        rates(SECTION, "worker, 100 votes a message", "votes/s", hundred),
        *(rates(SECTION, f"worker, {size} votes a message", "votes/s", found) for size, found in runs.items()),
    )


async def _side_by_side(stage: Stage, votes: int, size: int) -> tuple[list[Run], list[Run]]:
    """Return runs of the worker and of raw pull and ack, in turns, each on messages that it finds waiting.

    Pub/Sub's emulator is the faster the fewer messages it has left, so both are looked at on the same stretch.
    """
    more = 2 if size == 1 and not stage.quick else 0  # the one ratio of these that has a budget: let its median be firm
    contenders = {"ours": partial(_course, stage, votes, size), "raw": partial(_raw, stage, votes, size)}
    await _course(stage, votes // 4 if stage.quick else votes, size)  # the emulators are slow at first: nobody's turn
    runs = await alternate(stage.repetitions + more, contenders)
    pairs = [(mine, raw, mine.steady) for mine, raw in zip(runs["ours"], runs["raw"], strict=True)]
    return [mine.over(steady, size) for mine, _, steady in pairs], [raw.over(steady, size) for _, raw, steady in pairs]


async def _raw(stage: Stage, votes: int, size: int) -> Course:
    """Publish, then pull and acknowledge everything, through the same port, and look at nothing."""
    settings = stage.settings()
    backend = await opened(settings)
    await publish(backend, settings.topic, pack(make_votes(await make_poll(backend), range(votes)), size))
    puller = backend.puller(settings.subscription)
    left = messages = votes // size
    marks, done = [(time.perf_counter(), 0)], asyncio.Event()

    async def pull() -> None:
        nonlocal left
        while left > 0:
            received = await puller.pull(1_000)
            left -= len(received)
            if received:
                await puller.acknowledge([message.ack_id for message in received])
                marks.append((time.perf_counter(), marks[-1][1] + len(received)))
        if marks[-1][1] >= messages:
            done.set()

    gc.collect()
    watch = Watch(votes)
    pulls = [asyncio.create_task(pull()) for _ in range(PULLS)]
    await done.wait()
    cpu = watch.stop().cpu
    for task in pulls:
        task.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)
    await backend.close()
    return Course(marks, cpu)


async def ours(stage: Stage, votes: int, size: int) -> Run:
    """Publish, then run one worker until every message is settled."""
    course = await _course(stage, votes, size)
    return course.over(course.steady, size)


async def _course(stage: Stage, votes: int, size: int) -> Course:
    settings = stage.settings()
    backend = await opened(settings)
    poll = await make_poll(backend)
    await publish(backend, settings.topic, pack(make_votes(poll, range(votes)), size))
    worker = bootstrap.vote_worker(settings, backend, bootstrap.World())
    stop = asyncio.Event()
    collector.spare()  # as the worker's process does
    watch = Watch(votes)
    running = asyncio.create_task(worker.run(stop))
    marks, steady = await _settled(worker, votes // size)
    cpu = watch.stop().cpu
    stop.set()
    await running
    gc.unfreeze()
    await _check(backend, poll, votes)
    await backend.close()
    return Course(marks, cpu, steady)


async def _settled(worker: Worker, messages: int) -> tuple[list[tuple[float, int]], tuple[int, int]]:
    """Wait until all messages are settled; return how many were when, and between which there were more to pull.

    A lane commits once a second: after the last Pull it mostly waits for that second to end. From none to all, where
    what came before was too short to say.
    """
    marks, steady = [(time.perf_counter(), 0)], list[tuple[float, int]]()
    while marks[-1][1] < messages:
        await asyncio.sleep(0.02)
        body = worker.health().body
        held, settled = msgspec.convert(body["held"], int), msgspec.convert(body["settled"], int)
        if settled > marks[-1][1]:
            marks.append((time.perf_counter(), settled))
            if settled < messages - held:
                steady.append(marks[-1])
    if steady and steady[-1][0] - steady[0][0] > _LONG_ENOUGH:
        return marks, (steady[0][1], steady[-1][1])
    return marks, (0, messages)


async def _processes(stage: Stage, votes: int) -> dict[int, list[Run]]:
    """Return runs of one worker process, of two on the same subscription, and so on: each turn adds to those there."""
    runs: dict[int, list[Run]] = {number: [] for number in PROCESSES[: 2 if stage.quick else None]}
    packed, packed_for = list[Outgoing](), ""
    for _ in range(stage.repetitions):
        environ = stage.environ()
        here, settings = stage.local(environ), config.load(environ)
        backend = await opened(settings)
        with ExitStack() as running:
            workers = list[Process]()
            for number, found in runs.items():
                while len(workers) < number:
                    workers.append(running.enter_context(here.started(here.worker())))
                poll = await make_poll(backend)
                if not packed:
                    packed, packed_for = pack(make_votes(poll, range(votes)), 100), poll.id
                messages = [Outgoing(data.replace(packed_for.encode(), poll.id.encode()), of) for data, of in packed]
                topic, pids = settings.topic, [worker.pid for worker in workers]
                found.append(await _several(backend, topic, messages, poll, votes, pids))
            for worker in workers:
                worker.signal(signal.SIGTERM)  # all at once: each takes a second to end
        await backend.close()
    return runs


async def _several(
    backend: Backend, topic: str, messages: Sequence[Outgoing], poll: Poll, votes: int, pids: Sequence[int]
) -> Run:
    """Publish to worker processes that wait, until all votes are in the ledger; the CPU is that of the workers."""

    async def all_counted() -> bool:
        return await counted(backend, poll) >= votes

    before = sum(map(group_cpu, pids))
    begun = time.perf_counter()
    await publish(backend, topic, messages)
    await until(all_counted)
    wall = time.perf_counter() - begun
    cpu = sum(map(group_cpu, pids)) - before
    await _check(backend, poll, votes)
    return Run(votes / wall, cpu / votes * 1e6)


async def _check(backend: Backend, poll: Poll, votes: int) -> None:
    found = await counted(backend, poll)
    if found != votes:
        raise RuntimeError(f"counted {found} of {votes} votes: no figure is worth anything")
