"""The pytest plugin of Tally's users: `pip install` makes its fixtures available.

    def test_counts(tally_loop, tally_backend, tally_faults):
        tally_faults({"commit:reply-lost": 0.1, "message:copied": 0.2}, seed=1)
        tally_loop.run(my_votes(tally_backend))     # minutes of virtual time, no waiting

plan.py lists the faults that can be asked for.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest

from tally.tasks.client import Tasks
from tally.tasks.deferred import registry
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.eager import eager
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan


@pytest.fixture
def tally_loop() -> Iterator[VirtualLoop]:
    """Give an event loop with virtual time: `tally_loop.run(coroutine)`."""
    with VirtualLoop() as loop:
        yield loop


@pytest.fixture
def tally_clock() -> VirtualClock:
    """Give the wall clock of the fakes: it follows the running loop's time; `step` it at will."""
    return VirtualClock()


@pytest.fixture
def tally_backend(tally_clock: VirtualClock) -> FakeBackend:
    """Give a backend in memory; `await tally_backend.prepare()` makes its topics and subscriptions."""
    return FakeBackend(clock=tally_clock)


@pytest.fixture
def tally_faults(tally_backend: FakeBackend) -> Callable[..., Plan]:
    """Make the backend fail by a seeded plan: `plan = tally_faults({"commit:reply-lost": 0.1}, seed=1)`."""

    def disturb(rates: Mapping[str, float], *, seed: int = 0) -> Plan:
        plan = Plan(Random(seed), rates)
        tally_backend.disturb(plan)
        return plan

    return disturb


@pytest.fixture
def tally_eager(tally_backend: FakeBackend, tally_clock: VirtualClock) -> Iterator[Tasks]:
    """Run every call of a task function at once: `call` returns when it has ended, times are ignored."""
    with eager(registry, tally_backend.store, tally_clock) as tasks:
        yield tasks
