"""The ceilings: what the message service and the store give to somebody who does nothing else."""

import asyncio
import time
from functools import partial

import numpy as np

from tally.ports import Backend, Outgoing
from tally.votes import keys
from tally.votes.ledger import Commit, Segment, Shard
from tally.votes.records import Records, ranks
from tests.bench.measure import Outcome, Run, alternate, rates
from tests.bench.stage import Stage, Watch, make_poll, make_votes, opened, pack, publish

SECTION = "ceilings"
COMMITTERS = 16
RECORDS = 600


async def run(stage: Stage) -> Outcome:
    single, hundred, commits = stage.votes(50_000), stage.votes(500_000), stage.votes(1_600, least=160)
    runs = await alternate(
        stage.repetitions,
        {
            "publish 1": partial(_publish, stage, single, 1),
            "publish 100": partial(_publish, stage, hundred, 100),
            "commits": partial(_commits, stage, commits),
        },
    )
    figures = (
        rates(SECTION, "raw publish, 1 vote a message, 1,000 a request", "votes/s", runs["publish 1"]),
        rates(SECTION, "raw publish, 100 votes a message", "votes/s", runs["publish 100"]),
        rates(SECTION, f"raw commits of the ledger's shape, {COMMITTERS} at once", "commits/s", runs["commits"]),
    )
    return Outcome(figures=figures)


async def _publish(stage: Stage, votes: int, size: int) -> Run:
    settings = stage.settings()
    backend = await opened(settings)
    messages: list[Outgoing] = pack(make_votes(await make_poll(backend), range(votes)), size)
    watch = Watch(votes)
    await publish(backend, settings.topic, messages)
    found = watch.stop()
    await backend.close()
    return found


async def _commits(stage: Stage, commits: int) -> Run:
    """Commit to as many partitions as there are committers, one after another on each, each upon the last's version."""
    backend = await opened(stage.settings())
    poll = await make_poll(backend, COMMITTERS)
    words = np.random.default_rng(1).integers(0, 2**64 - 1, (2, RECORDS), np.uint64)
    at = np.full(RECORDS, time.time_ns() // 1_000, np.uint64)
    records = Records(words[0], words[1], ranks(at, np.arange(RECORDS) % 5))
    watch = Watch(commits)
    await asyncio.gather(*(_log(backend, poll.id, part, records, commits // COMMITTERS) for part in range(COMMITTERS)))
    found = watch.stop()
    await backend.close()
    return found


async def _log(backend: Backend, poll: str, partition: int, records: Records, commits: int) -> None:
    key, version, segments = keys.shard(poll, partition), 0, list[Segment]()
    for sequence in range(1, commits + 1):
        segments = [*segments[-32:], Segment(sequence, RECORDS, RECORDS)]
        shard = Shard(sequence=sequence, ballots=sequence * RECORDS, counts=(0,) * 5, segments=tuple(segments))
        answer = await backend.store.commit(Commit(shard=shard, records=records, folded=()).writes(key, version))
        version = answer.versions[0]
