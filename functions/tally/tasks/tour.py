"""In which order a lessee visits the shards of a queue, by what it saw there.

Each lessee goes round the shards from a place of its own, each lease from where the last one ended; all go the same
way, so they follow rather than cross each other, and one that meets another jumps elsewhere. A shard that was found
drained, or where another was met, is shunned for a while: it comes after all others, the longest shunned first.
"""

from collections.abc import Iterable
from math import inf
from random import Random

_ANYWHERE = 1 << 32  # a place on the ring, whatever the number of shards
_SHUNNED = 3.0  # seconds
_COMPANY = 10.0  # seconds for which a lessee that was met is thought to be about


class Tour:
    """Instants are the loop's time, in seconds."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = random.randrange(_ANYWHERE)
        self._shunned: dict[int, float] = {}
        self._met = -inf

    def order(self, left: Iterable[int], shards: int, now: float) -> list[int]:
        """Return what is left of so many shards as it is to be visited."""

        def place(shard: int) -> tuple[float, int]:
            shunned = self._shunned.get(shard, -inf)
            return shunned if now < shunned + _SHUNNED else -inf, (shard - self._next) % shards

        return sorted(left, key=place)

    def alone(self, now: float) -> bool:
        """Tell whether no other lessee was met of late."""
        return now >= self._met + _COMPANY

    def visited(self, shard: int, now: float, *, drained: bool) -> None:
        """Note what was seen in a shard, and go on after it."""
        self._next = shard + 1
        if drained:
            self._shunned[shard] = now
        else:
            self._shunned.pop(shard, None)

    def met(self, shard: int, now: float) -> None:
        """Note that another lessee was ahead in a shard, and go on elsewhere."""
        self._shunned[shard] = self._met = now
        self._next = self._random.randrange(_ANYWHERE)
