"""The worker beside raw pull and ack of the same messages, at several votes a message, and in several processes."""

import asyncio
import gc
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import msgspec

from emulator.process import Process
from tally import bootstrap, config
from tally.config import Settings
from tally.ports import Backend
from tally.votes.poll import Poll
from tally.votes.worker import Worker
from tests.bench.measure import Budget, Figure, Outcome, Run, alternate, group_cpu, rates, ratio
from tests.bench.stage import Stage, Watch, counted, make_poll, make_votes, opened, pack, publish, until

SECTION = "worker"
PULLS = 4
PROCESSES = (1, 2, 4)
_LONG_ENOUGH = 1.5
LASTING = 100_000  # votes, one a message, that keep a worker busy for longer


async def run(stage: Stage) -> Outcome:
    single, raw = await _side_by_side(stage, LASTING, 1)
    others = () if stage.quick else await _others(stage, 300_000)
    processes = await _processes(stage, 400_000)
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
    """Return runs of the worker and of raw pull and ack, in turns, each on messages that it finds waiting."""
    more = 2 if size == 1 and not stage.quick else 0  # the one ratio of these that has a budget: let its median be firm
    contenders = {"ours": partial(ours, stage, votes, size), "raw": partial(_raw, stage, votes, size)}
    if not stage.quick:
        await contenders["ours"]()  # the emulators are slow at first: nobody's turn
    runs = await alternate(stage.repetitions + more, contenders)
    return runs["ours"], runs["raw"]


async def _raw(stage: Stage, votes: int, size: int) -> Run:
    """Publish, then pull and acknowledge everything, through the same port, and look at nothing."""
    settings = stage.settings()
    backend = await opened(settings)
    await publish(backend, settings.topic, pack(make_votes(await make_poll(backend), range(votes)), size))
    puller = backend.puller(settings.subscription)
    left = votes // size

    async def pull() -> None:
        nonlocal left
        while left > 0:
            received = await puller.pull(1_000)
            left -= len(received)
            if received:
                await puller.acknowledge([message.ack_id for message in received])

    gc.collect()
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
    """Publish, then run one worker until every message is settled."""
    settings = stage.settings()
    backend = await opened(settings)
    poll = await make_poll(backend)
    await publish(backend, settings.topic, pack(make_votes(poll, range(votes)), size))
    worker = bootstrap.vote_worker(settings, backend, bootstrap.World())
    stop = asyncio.Event()
    gc.collect()
    gc.freeze()  # as the worker's process does
    watch = Watch(votes)
    running = asyncio.create_task(worker.run(stop))
    rate = size * await _sustained(worker, votes // size)
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
        await asyncio.sleep(0.02)
        body = worker.health().body
        now, before, held = time.perf_counter(), settled, msgspec.convert(body["held"], int)
        settled = msgspec.convert(body["settled"], int)
        if before < settled < messages - held:
            marks.append((now, settled))
    (begin, first), (end, last) = (marks[0], marks[-1]) if marks else ((0.0, 0), (0.0, 0))
    return (last - first) / (end - begin) if end - begin > _LONG_ENOUGH else 0.0


async def _processes(stage: Stage, votes: int) -> dict[int, list[Run]]:
    """Return runs of one worker process, of two on the same subscription, and so on: each turn adds to those there."""
    runs: dict[int, list[Run]] = {number: [] for number in PROCESSES[: 2 if stage.quick else None]}
    for _ in range(stage.repetitions):
        environ = stage.environ()
        here, settings = stage.local(environ), config.load(environ)
        backend = await opened(settings)
        with ExitStack() as running:
            workers = list[Process]()
            for number, found in runs.items():
                while len(workers) < number:
                    workers.append(running.enter_context(here.started(here.worker())))
                found.append(await _several(settings, backend, [worker.pid for worker in workers], votes))
        await backend.close()
    return runs


async def _several(settings: Settings, backend: Backend, pids: Sequence[int], votes: int) -> Run:
    """Publish to worker processes that wait, until all votes are in the ledger; the CPU is that of the workers."""
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, range(votes)), 100)

    async def all_counted() -> bool:
        return await counted(backend, poll) >= votes

    before = sum(map(group_cpu, pids))
    begun = time.perf_counter()
    await publish(backend, settings.topic, messages)
    await until(all_counted)
    wall = time.perf_counter() - begun
    cpu = sum(map(group_cpu, pids)) - before
    await _check(backend, poll, votes)
    return Run(votes / wall, cpu / votes * 1e6)


async def _check(backend: Backend, poll: Poll, votes: int) -> None:
    found = await counted(backend, poll)
    if found != votes:
        raise RuntimeError(f"counted {found} of {votes} votes: no figure is worth anything")
