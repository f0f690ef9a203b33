"""A rate of starts with a burst, as a token bucket of one number: the instant at which it will be full (GCRA). Pure."""

from dataclasses import dataclass
from math import ceil, floor, isfinite

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRate:
    """At most `per_second` in the long run, and `burst` at once: in t seconds burst + per_second · t."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        if not 0 < self.per_second <= limits.STARTS_PER_SECOND:
            raise InvalidInput(f"per_second is {self.per_second}: want more than 0, at most {limits.STARTS_PER_SECOND}")
        if not 1 <= self.burst <= limits.LEASE_TASKS:
            raise InvalidInput(f"burst is {self.burst}: want 1 to {limits.LEASE_TASKS}")

    @classmethod
    def of(cls, per_second: float, burst: int | None = None) -> "StartRate":
        """Return a rate whose burst, if it is not given, is what comes in a second."""
        if burst is None:  # inf and NaN, which have no integer, are for the checks above to refuse
            burst = max(1, round(min(per_second, limits.LEASE_TASKS))) if isfinite(per_second) else 1
        return cls(per_second=per_second, burst=burst)

    def tokens(self, full_at: int, now: int) -> int:
        """Return how many tokens are there at `now`, in a bucket that will be full at `full_at` (µs)."""
        missing = max(0, full_at - now) * self.per_second / SECOND
        return max(0, floor(self.burst - missing))

    def take(self, full_at: int, count: int, now: int) -> int:
        """Return when the bucket is full once `count` tokens are taken."""
        return max(full_at, now) + ceil(count * SECOND / self.per_second)

    def put_back(self, full_at: int, count: int) -> int:
        return max(0, full_at - floor(count * SECOND / self.per_second))

    def ready_at(self, full_at: int, count: int) -> int:
        """Return from when on `count` tokens (at most a burst) are there, if nobody takes any."""
        return full_at - floor((self.burst - count) * SECOND / self.per_second)
