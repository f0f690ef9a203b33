"""The pytest plugin of Tally's users: `pip install` makes its fixtures available.

def test_counts(tally_loop, tally_backend):
    tally_loop.run(my_votes(tally_backend))     # minutes of virtual time, no waiting
"""

from collections.abc import Iterator

import pytest

from tally.tasks.client import Tasks
from tally.tasks.deferred import registry
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.eager import eager
from tally.testing.loop import VirtualLoop


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
def tally_eager(tally_backend: FakeBackend, tally_clock: VirtualClock) -> Iterator[Tasks]:
    """Run every call of a task function at once: `call` returns when it has ended, times are ignored."""
    with eager(registry, tally_backend.store, tally_clock) as tasks:
        yield tasks
