"""The worker: raw pull and ack of the same messages, the worker at several votes a message, several workers, peers."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack

from tally import bootstrap
from tally.ports import Backend, Outgoing
from tests.bench.measure import Budget, Figure, Outcome, alternate, ratio
from tests.bench.peers import app_engine
from tests.bench.stage import Stage, counted, make_poll, make_votes, opened, pack, publish

SECTION = "worker"
PULLS = 4


async def run(stage: Stage) -> Outcome:
    single, hundred = stage.votes(60_000), stage.votes(500_000)
    samples = await alternate(
        stage.repetitions,
        {
            "raw 1": lambda: raw(stage, single, 1),
            "worker 1": lambda: ours(stage, single, 1),
            "worker 10": lambda: ours(stage, single * 3, 10),
            "raw 100": lambda: raw(stage, hundred, 100),
            "worker 100": lambda: ours(stage, hundred, 100),
            "worker 1000": lambda: ours(stage, hundred, 1_000),
            "app engine": lambda: plain(stage, stage.votes(5_000)),
        },
    )
    many = await alternate(
        stage.repetitions, {str(count): (lambda count=count: several(stage, hundred, count)) for count in (1, 2, 4)}
    )
    to_raw = ratio(SECTION, "1 vote a message ÷ raw pull and ack", samples["worker 1"], samples["raw 1"])
    to_plain = ratio(
        SECTION, "100 votes a message ÷ the App Engine pattern", samples["worker 100"], samples["app engine"]
    )
    two = ratio(SECTION, "two workers ÷ one", many["2"], many["1"])
    names = {
        "raw 1": "raw pull and ack, 1 vote a message",
        "worker 1": "worker, 1 vote a message",
        "worker 10": "worker, 10 votes a message",
        "raw 100": "raw pull and ack, 100 votes a message",
        "worker 100": "worker, 100 votes a message",
        "worker 1000": "worker, 1,000 votes a message",
        "app engine": "App Engine pattern, 1 vote a message",
    }
    figures = [
        Figure(section=SECTION, name=name, unit="votes/s", samples=tuple(samples[key])) for key, name in names.items()
    ]
    figures += [
        Figure(
            section=SECTION, name=f"{count} worker processes, 100 votes a message", unit="votes/s", samples=tuple(rates)
        )
        for count, rates in many.items()
    ]
    budgets = (
        Budget(name="worker, one vote a message ÷ raw pull+ack", figure=to_raw, bound=0.75, aim=0.9),
        Budget(name="worker, 100 votes a message ÷ the plain pattern", figure=to_plain, bound=50, aim=100),
        Budget(name="two workers on one subscription ÷ one", figure=two, bound=0.9, aim=1.2),
    )
    return Outcome(figures=(*figures, to_raw, to_plain, two), budgets=budgets)


async def raw(stage: Stage, votes: int, size: int) -> float:
    """Pull and acknowledge everything, through the same port, and look at nothing; return votes a second."""
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

    begun = time.perf_counter()
    pulls = [asyncio.create_task(pull()) for _ in range(PULLS)]
    await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
    seconds = time.perf_counter() - begun
    for task in pulls:
        task.cancel()
    await asyncio.gather(*pulls, return_exceptions=True)
    await backend.close()
    return votes / seconds


async def ours(stage: Stage, votes: int, size: int) -> float:
    """Run one worker until every message is settled; return votes a second."""
    settings = stage.settings()
    backend = await opened(settings)
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, range(votes)), size)
    await publish(backend, settings.topic, messages)
    worker = bootstrap.vote_worker(settings, backend, bootstrap.World())
    stop = asyncio.Event()
    begun = time.perf_counter()
    running = asyncio.create_task(worker.run(stop))
    while worker.health().body["settled"] != len(messages):
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - begun
    stop.set()
    await running
    assert await counted(backend, poll) == votes, "the bench counts exactly, or not at all"
    await backend.close()
    return votes / seconds


async def several(stage: Stage, votes: int, workers: int) -> float:
    """Publish to worker processes that wait; return votes a second until all are in the ledger."""
    environ = stage.environ()
    here = stage.local(environ)
    settings = bootstrap.config.load(environ)
    backend = await opened(settings)
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, range(votes)), 100)
    with ExitStack() as running:
        for _ in range(workers):
            running.enter_context(here.started(here.worker()))
        begun = time.perf_counter()
        await publish(backend, settings.topic, messages)
        while await counted(backend, poll) < votes:
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - begun
    await backend.close()
    return votes / seconds


async def plain(stage: Stage, votes: int) -> float:
    """Run the App Engine pattern on messages of one vote each; return votes a second."""
    environ = stage.environ()
    settings = bootstrap.config.load(environ)
    backend = await opened(settings)
    await publish(backend, settings.topic, [Outgoing(b"item_%d" % (number % 5), {}) for number in range(votes)])
    await backend.close()
    return await asyncio.to_thread(app_engine.count, environ, votes)


async def _backlog(backend: Backend, topic: str, votes: int, size: int) -> Sequence[Outgoing]:
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, range(votes)), size)
    await publish(backend, topic, messages)
    return messages
