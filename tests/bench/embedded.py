"""The pipeline on one SQLite file: no cloud, no emulator, and durable."""

import tempfile
from functools import partial
from pathlib import Path

from emulator.local import local
from tests.bench.measure import Outcome, alternate, rates
from tests.bench.stage import Stage
from tests.bench.worker import ours

SECTION = "embedded"


async def run(stage: Stage) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as state, local("embedded", Path(state)) as here:
        own = Stage(here=here, scale=stage.scale, repetitions=stage.repetitions)
        contenders = {
            str(size): partial(ours, own, own.votes(votes), size) for size, votes in ((1, 20_000), (100, 300_000))
        }
        runs = await alternate(own.repetitions, contenders)
    return Outcome(
        figures=(
            rates(SECTION, "worker, 1 vote a message", "votes/s", runs["1"]),
            rates(SECTION, "worker, 100 votes a message", "votes/s", runs["100"]),
        )
    )
