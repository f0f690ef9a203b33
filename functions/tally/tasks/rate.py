"""How fast a queue may dispatch: a token bucket whose rate ramps up, and falls while the target is overloaded.

Pure: every method is given `now` (µs since 1970). Cloud Tasks documents the bucket (rate and burst), that a new or idle
queue starts slowly, and that 429, 503 and many errors slow the whole queue; it gives no numbers for the last two, so
these are ours.
"""

from dataclasses import dataclass
from math import ceil

from tally.clock import SECOND
from tally.errors import InvalidInput

CUT = 0.5  # what one sign of overload leaves of the rate, at most once a second
FLOOR = 1 / 1024
RECOVERY = 10 * SECOND  # the reduced rate doubles in this time
ERROR_SHARE = 0.5  # more failures than this count as overload
ERROR_MEMORY = 0.05  # weight of the newest outcome in that share
ERROR_SAMPLES = 20  # outcomes before the share means anything
RECHECK = SECOND  # while the rate grows, ask again this soon
EPSILON = 1e-6  # tokens: forgives the rounding of instants to µs
MINUTE_OF_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A queue that is new, or dispatched nothing for `idle` s, starts at `start`/s and doubles in `doubling` s."""

    start: float = 50.0
    doubling: float = 5.0
    idle: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """At most `per_second` dispatches (0 stops the queue), `burst` at once, `concurrent` unanswered."""

    per_second: float = 500.0
    burst: int = 500
    concurrent: int = 1_000
    ramp: Ramp | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.per_second < float("inf"):
            raise InvalidInput(f"per_second is {self.per_second}: want a finite number of at least 0")
        for name in ("burst", "concurrent"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}: want at least 1")


class Rate:
    """The bucket of one queue. It starts full."""

    def __init__(self, limits: RateLimits, *, now: int) -> None:
        self._limits = limits
        self._tokens = float(limits.burst)
        self._filled_at = now
        self._ramp_from = now
        self._last_take = now
        self._factor = 1.0
        self._cut_at = now - RECOVERY
        self._error_share = 0.0
        self._samples = 0

    def configure(self, limits: RateLimits, now: int) -> None:
        """Take new limits from now on; tokens above the new burst are lost."""
        self._refill(now)
        self._limits = limits
        self._tokens = min(self._tokens, limits.burst)

    def restart_ramp(self, now: int) -> None:
        """Start slowly again, as after a pause."""
        self._refill(now)
        self._ramp_from = now

    def enforced(self, now: int) -> float:
        """Return the dispatches a second that are allowed now, in the long run."""
        rate = self._limits.per_second * self._throttle(now)
        ramp = self._limits.ramp
        if ramp is None:
            return rate
        age = max(0, now - self._ramp_from) / SECOND
        return min(rate, ramp.start * 2 ** min(age / ramp.doubling, 64))

    def ready_at(self, now: int) -> int | None:
        """Return when to ask again: an instant up to `now` means that a token is there; None, that none will come."""
        self._refill(now)
        if self._tokens >= 1 - EPSILON:
            return now
        rate = self.enforced(now)
        if rate <= 0:
            return None
        wait = max(1, ceil((1 - self._tokens) / rate * SECOND))
        return now + (min(wait, RECHECK) if rate < self._limits.per_second else wait)

    def take(self, now: int) -> None:
        """Use a token, which `ready_at` said is there."""
        ramp = self._limits.ramp
        if ramp is not None and now - self._last_take > ramp.idle * SECOND:
            self.restart_ramp(now)
        self._refill(now)
        self._tokens = max(0.0, self._tokens - 1)
        self._last_take = now

    def record(self, *, success: bool, overload: bool, now: int) -> None:
        """Take in an outcome: `overload` slows the queue, and so does a high share of failures."""
        self._error_share += (float(not success) - self._error_share) * ERROR_MEMORY
        self._samples += 1
        many_errors = self._samples >= ERROR_SAMPLES and self._error_share > ERROR_SHARE and not success
        if (overload or many_errors) and now - self._cut_at >= SECOND:
            self._refill(now)
            self._factor = max(FLOOR, self._throttle(now) * CUT)
            self._cut_at = now
            self._tokens = min(self._tokens, self._capacity(now))

    def _throttle(self, now: int) -> float:
        if self._factor >= 1:
            return 1.0
        return float(min(1.0, self._factor * 2 ** min((now - self._cut_at) / RECOVERY, 64)))

    def _capacity(self, now: int) -> float:
        if self._limits.per_second <= 0:
            return 0.0
        return max(1.0, self._limits.burst * min(1.0, self.enforced(now) / self._limits.per_second))

    def _refill(self, now: int) -> None:
        elapsed = max(0, now - self._filled_at)
        self._tokens = min(self._capacity(now), self._tokens + elapsed * self.enforced(now) / SECOND)
        self._filled_at = max(now, self._filled_at)


class Meter:
    """Counts events of the last minute, in one-second steps and constant memory."""

    def __init__(self) -> None:
        self._counts = [0] * MINUTE_OF_SECONDS
        self._second = 0

    def add(self, now: int) -> None:
        self._advance(now)
        self._counts[self._second % MINUTE_OF_SECONDS] += 1

    def total(self, now: int) -> int:
        self._advance(now)
        return sum(self._counts)

    def _advance(self, now: int) -> None:
        second = max(now // SECOND, self._second)
        for passed in range(max(self._second + 1, second - MINUTE_OF_SECONDS + 1), second + 1):
            self._counts[passed % MINUTE_OF_SECONDS] = 0
        self._second = second
