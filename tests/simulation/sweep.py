"""Runs many seeds on all cores."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.run import Outcome, simulate
from tests.simulation.world import EVENTS, RATES

_CHUNK = 5


def sweep(seeds: range) -> Iterator[Outcome]:
    """Simulate the seeds, in order of their chunks; the outcomes come as they are ready."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(simulate, seeds, chunksize=_CHUNK)


def unfired(fired: Counter[str]) -> list[str]:
    """Return the faults and events that never happened."""
    return [name for name in (*RATES, *EVENTS) if not fired[name]]
