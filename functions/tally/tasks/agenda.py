"""A priority queue by instant whose items may become void in place: no search when a task is deleted or answered.

Void items are dropped when they reach the head, and all at once when they outnumber the live ones: memory follows the
live.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")
TOLERATED = 64  # void items that are not worth a sweep


class Agenda(Generic[K]):
    """`valid(instant, sequence, key)` tells whether an item still stands, `live()` about how many do."""

    def __init__(self, valid: Callable[[int, int, K], bool], live: Callable[[], int]) -> None:
        self._valid = valid
        self._live = live
        self._heap: list[tuple[int, int, K]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, instant: int, sequence: int, key: K) -> None:
        if len(self._heap) > 2 * self._live() + TOLERATED:
            self._heap = [item for item in self._heap if self._valid(*item)]
            heapify(self._heap)
        heappush(self._heap, (instant, sequence, key))

    def head(self) -> tuple[int, int, K] | None:
        """Return the earliest item that still stands (ties by sequence), without removing it."""
        while self._heap:
            if self._valid(*self._heap[0]):
                return self._heap[0]
            heappop(self._heap)
        return None

    def pop(self) -> None:
        """Remove the item that `head` returned."""
        heappop(self._heap)
