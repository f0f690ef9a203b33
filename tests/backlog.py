"""Large backlogs, measured: votes that wait when a worker starts, and a full partition. On fakes and embedded only.

python -m tests.backlog waiting [--votes 1000000]      a real worker process on embedded: seconds and peak memory
python -m tests.backlog partition [--ballots 4000000]  one partition loaded and folded: seconds, lookups, memory
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np

from tally import bootstrap, config
from tally.clock import SystemClock
from tally.ports import Key, Lookup, Outgoing, Upsert
from tally.testing.store import FakeStore
from tally.votes import batch, keys, ledger
from tally.votes.batch import Vote
from tally.votes.counter import Counter
from tally.votes.polls import to_entity
from tally.votes.records import Records
from tally.votes.recount import recount
from tests.unit.votes.pipeline import poll

A_MESSAGE, A_PUBLISH = 100, 500
MADE = poll(partitions=16)


async def _fill(settings: config.Settings, votes: int) -> None:
    backend = await bootstrap.open_backend(settings)
    await backend.prepare()
    await backend.store.commit([Upsert(to_entity(MADE))])
    now = SystemClock().now()
    messages: list[Outgoing] = []
    for start in range(0, votes, A_MESSAGE):
        content = [
            Vote(MADE.id, "red", blake2b(b"%d" % number, digest_size=16).digest(), now + number % 1_000)
            for number in range(start, min(start + A_MESSAGE, votes))
        ]
        messages.append(Outgoing(batch.encode(content), {}))
        if len(messages) == A_PUBLISH or start + A_MESSAGE >= votes:
            await backend.publisher.publish(settings.topic, messages)
            messages = []
    await backend.close()


async def _counted(settings: config.Settings) -> int:
    backend = await bootstrap.open_backend(settings)
    counted = await recount(backend.store, MADE)
    await backend.close()
    assert not counted.differences, counted.differences
    return len(counted.records)


def drain(state: Path, votes: int) -> dict[str, float]:
    """Let a worker process drain votes that wait on embedded; its time includes 20 s of seeing that it is empty."""
    environ = {
        **os.environ,
        "TALLY_BACKEND": "embedded",
        "TALLY_STATE": str(state),
        "TALLY_DURABILITY": "process-crash",
    }
    settings = config.load(environ)
    asyncio.run(_fill(settings, votes))
    begun = time.monotonic()
    command = [str(Path(sys.executable).with_name("tally")), "worker", "--port", "0", "--until-empty"]
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1_024
    return {"votes": votes, "counted": asyncio.run(_counted(settings)), "seconds": seconds, "peak_bytes": peak}


class _Watched(FakeStore):
    lookups = entities_read = 0

    async def get(self, asked: Sequence[Key]) -> Lookup:
        self.lookups += 1
        answer = await super().get(asked)
        self.entities_read += len(answer.found)
        return answer


def load(ballots: int) -> dict[str, float]:
    """Fill a partition, then load it as a worker that starts does."""

    async def main() -> dict[str, float]:
        store = _Watched()
        writer = Counter(store, MADE.id, 0, "keep", loads=asyncio.Semaphore(2), fold_from=32)
        await writer.refresh()
        random = np.random.default_rng(1)
        while writer.ballots < ballots:
            count = min(ledger.SEGMENT_RECORDS, ballots - writer.ballots)
            high, low = (random.integers(0, 1 << 64, count, np.uint64, endpoint=False) for _ in range(2))
            await writer.commit(Records(high, low, np.full(count, 5 << 10, np.uint64)))
        store.lookups = store.entities_read = 0
        reader = Counter(store, MADE.id, 0, "keep", loads=asyncio.Semaphore(2), fold_from=32)
        tracemalloc.start()
        begun = time.monotonic()
        await reader.refresh()
        seconds = time.monotonic() - begun
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        shard = next(entity for entity in store.of_kind(keys.SHARD))
        return {
            "ballots": reader.ballots,
            "seconds": seconds,
            "lookups": store.lookups,
            "entities_read": store.entities_read,
            "segments": len(ledger.parse_shard(shard).segments),
            "held_bytes_a_ballot": held / ballots,
            "peak_bytes_a_ballot": peak / ballots,
        }

    return asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["waiting", "partition"])
    parser.add_argument("--votes", type=int, default=1_000_000)
    parser.add_argument("--ballots", type=int, default=4_000_000)
    given = parser.parse_args()
    if given.what == "partition":
        found = load(given.ballots)
    else:
        with tempfile.TemporaryDirectory() as state:
            found = drain(Path(state), given.votes)
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
