"""A wall clock over the loop's time, which a test can set off, drift or step like a real host's."""

import asyncio

from tally.clock import SECOND

EPOCH = 1_900_000_000 * SECOND


class VirtualClock:
    """Gives µs since 1970: the running loop's time since the clock's first use of it, plus `skew`."""

    def __init__(self, *, epoch: int = EPOCH, skew: int = 0) -> None:
        self._epoch = epoch
        self.skew = skew

    def now(self) -> int:
        return self._epoch + round(asyncio.get_running_loop().time() * SECOND) + self.skew

    def step(self, microseconds: int) -> None:
        """Move the clock at once, as an NTP step does; negative is backwards."""
        self.skew += microseconds
