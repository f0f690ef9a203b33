from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tally.testing.loop import VirtualLoop
from tests.unit.tasks.calls import World

Go = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run(tally_loop: VirtualLoop) -> Go:
    """Give a function that runs a coroutine on virtual time."""
    return tally_loop.run


@pytest.fixture
def world() -> World:
    """Give calls with a queue and workers; where the tests of a file need another world, it has its own fixture."""
    return World()
