from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tally.testing.loop import VirtualLoop

Go = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run(tally_loop: VirtualLoop) -> Go:
    """Give a function that runs a coroutine on virtual time."""
    return tally_loop.run
