"""What people would use instead, on the same messages: one vote each, and one in twenty of them sent twice."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from unittest import mock

import msgspec

from tally import bootstrap, config
from tally.ports import Outgoing
from tally.votes import prices
from tests.bench.measure import Budget, Cost, Figure, Outcome, Run, alternate, rates, ratio
from tests.bench.meter import MeteredStore, Usage, metered_client
from tests.bench.peers import app_engine, streaming, voter_entity
from tests.bench.stage import OPTIONS, Stage, Watch, counted, make_poll, make_votes, opened, pack, publish, settled

SECTION = "peers"
COPIED = 20


class Peer(NamedTuple):
    """`votes` in a full run: a few seconds of its work."""

    name: str
    votes: int
    work: Callable[[str, str, int], None]
    total: Callable[[str, str], int]


PEERS: Sequence[Peer] = (
    Peer("App Engine pattern", 3_000, app_engine.work, app_engine.total),
    Peer("streaming pull, sharded counter", 300, streaming.work, app_engine.total),
    Peer("one entity a voter", 3_000, voter_entity.work, voter_entity.total),
)
OURS = "worker, 1 vote a message"
PACKED = "worker, 100 votes a message"


class Count(NamedTuple):
    """What a run cost and whether it counted right."""

    votes: int
    messages: int
    total: int
    usage: Usage

    def cost(self) -> Cost:
        stream = 2 * self.messages * prices.PUBSUB_LEAST_BYTES * prices.PUBSUB_BYTE
        return Cost(
            writes=self.usage.writes * 1_000 / self.votes,
            dollars=(self.usage.dollars + stream) * 1_000_000 / self.votes,
            off=(self.total - self.votes) / self.votes,
        )


async def run(stage: Stage) -> Outcome:
    counts: dict[str, Count] = {}

    async def peer(one: Peer) -> Run:
        timed, counts[one.name] = await _peer(stage, one, stage.votes(one.votes, least=100))
        return timed

    async def ours(name: str, votes: int, size: int) -> Run:
        timed, counts[name] = await counted_run(stage, votes, size)
        return timed

    # So many that even the fastest has not all of them within one period of its commits, for which it then only waits.
    sizes = {PACKED: (stage.votes(600_000, least=300_000), 100)}
    peers = PEERS[:1]  # what the budget holds
    if not stage.quick:
        sizes[OURS] = (stage.votes(60_000), 1)
        peers = PEERS
    runs = await alternate(
        stage.repetitions,
        {
            **{name: partial(ours, name, *votes_and_size) for name, votes_and_size in sizes.items()},
            **{one.name: partial(peer, one) for one in peers},
        },
    )
    ratios = [ratio(SECTION, f"{name} ÷ {one.name}", runs[name], runs[one.name]) for name in sizes for one in peers]
    figures: Sequence[Figure] = [
        *(rates(SECTION, name, "votes/s", found, cost=counts[name].cost()) for name, found in runs.items()),
        *ratios,
    ]
    plain = Budget(name="worker, 100 votes a message ÷ the plain pattern", figure=ratios[0], bound=50, aim=100)
    return Outcome(figures=tuple(figures), budgets=(plain,))


async def _peer(stage: Stage, peer: Peer, votes: int) -> tuple[Run, Count]:
    environ = stage.environ()
    settings = config.load(environ)
    backend = await opened(settings)
    messages = [
        Outgoing(msgspec.json.encode({"option": OPTIONS[number % 5], "voter": f"v-{number}"}), {})
        for number in with_copies(votes)
    ]
    await publish(backend, settings.topic, messages)
    await backend.close()
    with mock.patch.dict(os.environ, environ), metered_client() as usage:
        watch = Watch(votes)
        await asyncio.to_thread(peer.work, settings.project, settings.subscription, len(messages))
        timed = watch.stop()
        total = await asyncio.to_thread(peer.total, settings.project, settings.subscription)
    return timed, Count(votes, len(messages), total, usage)


async def counted_run(stage: Stage, votes: int, size: int) -> tuple[Run, Count]:
    """Run one worker on votes of which one in twenty comes twice; return what it did and what that cost."""
    settings = stage.settings()
    backend = await opened(settings)
    poll = await make_poll(backend)
    messages = pack(make_votes(poll, with_copies(votes)), size)
    await publish(backend, settings.topic, messages)
    backend.store = store = MeteredStore(backend.store)
    worker = bootstrap.vote_worker(settings, backend, bootstrap.World())
    stop = asyncio.Event()
    watch = Watch(votes)
    running = asyncio.create_task(worker.run(stop))
    await settled(worker, len(messages))
    timed = watch.stop()
    stop.set()
    await running
    usage = store.usage
    total = await counted(backend, poll)
    await backend.close()
    return timed, Count(votes, len(messages), total, usage)


def with_copies(votes: int) -> list[int]:
    """Number votes, and again those that are sent twice, half-way through."""
    half = votes // 2
    return [*range(half), *range(0, votes, COPIED), *range(half, votes)]
