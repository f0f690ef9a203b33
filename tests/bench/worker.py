"""The worker: raw pull and ack of the same messages, the worker at several votes a message, several workers."""

import asyncio
import gc
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import msgspec

from tally import bootstrap, config
from tally.ports import Backend, Outgoing
from tally.votes.poll import Poll
from tally.votes.worker import Worker
from tests.bench.measure import Budget, Outcome, Run, alternate, group_cpu, rates, ratio
from tests.bench.stage import Stage, Watch, counted, make_poll, make_votes, opened, pack, publish, until

SECTION = "worker"
PULLS = 4
_LONG_ENOUGH = 1.5


async def run(stage: Stage) -> Outcome:
    single, hundred = stage.votes(60_000, least=30_000), stage.votes(400_000)
    runs = await alternate(
        stage.repetitions,
        {
            "raw 1": partial(raw, stage, single, 1),
            "worker 1": partial(ours, stage, single, 1),
            "worker 10": partial(ours, stage, single * 2, 10),
            "raw 100": partial(raw, stage, hundred, 100),
            "worker 100": partial(ours, stage, hundred, 100),
            "worker 1000": partial(ours, stage, hundred, 1_000),
            "1 process": partial(several, stage, hundred, 1),
            "2 processes": partial(several, stage, hundred, 2),
            "4 processes": partial(several, stage, hundred, 4),
        },
    )
    to_raw = ratio(SECTION, "1 vote a message ÷ raw pull and ack", runs["worker 1"], runs["raw 1"])
    two = ratio(SECTION, "two workers ÷ one", runs["2 processes"], runs["1 process"])
    names = {
        "raw 1": "raw pull and ack, 1 vote a message",
        "worker 1": "worker, 1 vote a message",
        "worker 10": "worker, 10 votes a message",
        "raw 100": "raw pull and ack, 100 votes a message",
        "worker 100": "worker, 100 votes a message",
        "worker 1000": "worker, 1,000 votes a message",
        "1 process": "1 worker process, 100 votes a message",
        "2 processes": "2 worker processes, 100 votes a message",
        "4 processes": "4 worker processes, 100 votes a message",
    }
    figures = [rates(SECTION, name, "votes/s", runs[key]) for key, name in names.items()]
    budgets = (
        Budget(name="worker, one vote a message ÷ raw pull+ack", figure=to_raw, bound=0.75, aim=0.9),
        Budget(name="two workers on one subscription ÷ one", figure=two, bound=0.9, aim=1.2),
    )
    return Outcome(figures=(*figures, to_raw, two), budgets=budgets)


async def raw(stage: Stage, votes: int, size: int) -> Run:
    """Pull and acknowledge everything, through the same port, and look at nothing."""
    settings = stage.settings()
    backend = await opened(settings)
    messages = await _backlog(backend, settings.topic, votes, size)
    puller = backend.puller(settings.subscription)
    left = len(messages)

    async def pull() -> None:
        nonlocal left
        while left > 0:
            received = await puller.pull(1_000)
            left -= len(received)
            if received:
                await puller.acknowledge([message.ack_id for message in received])

    watch = Watch(votes)
    pulls = [asyncio.create_task(pull()) for _ in range(PULLS)]
    await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
    found = watch.stop()
    for task in pulls:
        task.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)
    await backend.close()
    return found


async def ours(stage: Stage, votes: int, size: int) -> Run:
    """Run one worker until every message is settled."""
    settings = stage.settings()
    backend = await opened(settings)
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, range(votes)), size)
    await publish(backend, settings.topic, messages)
    worker = bootstrap.vote_worker(settings, backend, bootstrap.World())
    stop = asyncio.Event()
    gc.collect()
    gc.freeze()  # as the worker's process does
    watch = Watch(votes)
    running = asyncio.create_task(worker.run(stop))
    rate = size * await _sustained(worker, len(messages))
    found = watch.stop()
    stop.set()
    await running
    gc.unfreeze()
    await _check(backend, poll, votes)
    await backend.close()
    return Run(rate or found.rate, found.cpu)


async def _sustained(worker: Worker, messages: int) -> float:
    """Wait until all messages are settled; return how many a second were, as long as there were more to pull.

    A lane commits once a second: after the last Pull it mostly waits for that second to end. 0: too short to say.
    """
    settled, marks = 0, list[tuple[float, int]]()
    while settled < messages:
        await asyncio.sleep(0.005)
        body = worker.health().body
        now, before, held = time.perf_counter(), settled, msgspec.convert(body["held"], int)
        settled = msgspec.convert(body["settled"], int)
        if before < settled < messages - held:
            marks.append((now, settled))
    (begin, first), (end, last) = (marks[0], marks[-1]) if marks else ((0.0, 0), (0.0, 0))
    return (last - first) / (end - begin) if end - begin > _LONG_ENOUGH else 0.0


async def several(stage: Stage, votes: int, workers: int) -> Run:
    """Publish to worker processes that wait, until all votes are in the ledger; the CPU is that of the workers."""
    environ = stage.environ()
    here = stage.local(environ)
    settings = config.load(environ)
    backend = await opened(settings)
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, range(votes)), 100)

    async def all_counted() -> bool:
        return await counted(backend, poll) >= votes

    with ExitStack() as running:
        pids = [running.enter_context(here.started(here.worker())).pid for _ in range(workers)]
        before = sum(map(group_cpu, pids))
        begun = time.perf_counter()
        await publish(backend, settings.topic, messages)
        await until(all_counted)
        wall = time.perf_counter() - begun
        cpu = sum(map(group_cpu, pids)) - before
    await _check(backend, poll, votes)
    await backend.close()
    return Run(votes / wall, cpu / votes * 1e6)


async def _check(backend: Backend, poll: Poll, votes: int) -> None:
    found = await counted(backend, poll)
    if found != votes:
        raise RuntimeError(f"counted {found} of {votes} votes: no figure is worth anything")


async def _backlog(backend: Backend, topic: str, votes: int, size: int) -> Sequence[Outgoing]:
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, range(votes)), size)
    await publish(backend, topic, messages)
    return messages
