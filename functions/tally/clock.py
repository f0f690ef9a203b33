"""Wall-clock time as a port: integer microseconds since 1970, UTC. Nothing below the edge reads the clock itself.

Durations and deadlines inside a process use the event loop's own clock (`loop.time()`), which no NTP step moves.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

SECOND = 1_000_000
CLOCK_BOUND = 20 * SECOND  # how far a clock may be from the store's
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    def now(self) -> int:
        """Return microseconds since 1970."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000


class Stamps:
    """Hands out instants that strictly increase within a process, whatever the clock does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        self._last = max(self._clock.now(), self._last + 1)
        return self._last


def apart(sent_at: int, read_time: int | None, now: int) -> int:
    """Return how far (µs), at least, this clock is from the store's, which said `read_time` between two looks at this.

    None: it did not say.
    """
    return 0 if read_time is None else max(sent_at - read_time, read_time - now, 0)


def to_datetime(microseconds: int) -> datetime:
    """Return the aware UTC datetime of an instant, exactly (no float in between)."""
    return EPOCH + timedelta(microseconds=microseconds)


def from_datetime(instant: datetime) -> int:
    """Return the microseconds of an aware datetime; a naive one is a programming error (ValueError)."""
    if instant.tzinfo is None:
        raise ValueError(f"datetime {instant!r} has no time zone")
    return (instant - EPOCH) // timedelta(microseconds=1)
