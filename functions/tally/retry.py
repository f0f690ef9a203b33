"""Back-off as a value: how long to wait before the next try. Pure; the caller sleeps."""

from dataclasses import dataclass
from math import inf, ldexp
from random import Random

from tally.errors import InvalidInput

UNLIMITED = -1
_MAX_EXPONENT = 1_000  # keeps the product a float; every cap is below it


def full_jitter(attempt: int, *, base: float, cap: float, random: Random) -> float:
    """Return seconds to wait before try `attempt` (1 = the first repetition), uniform in 0 … min(cap, base·2ⁿ).

    The algorithm is "full jitter" of M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    return random.uniform(0, min(cap, base * 2 ** min(attempt - 1, 32)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed task is tried again, by the text of Cloud Tasks' `RetryConfig`; the defaults are its defaults.

    `max_attempts` counts the first attempt too; -1 sets no limit. `max_retry_duration` counts from the first attempt;
    0 sets no limit. Durations are seconds. `jitter` is the share of a delay that `random` may take off, 0 … 1; the
    service's own is not documented, so it is 0 here.
    """

    max_attempts: int = 100
    max_retry_duration: float = 0.0
    min_backoff: float = 0.1
    max_backoff: float = 3600.0
    max_doublings: int = 16
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.max_attempts != UNLIMITED and self.max_attempts < 1:
            raise InvalidInput(f"max_attempts is {self.max_attempts}: want -1 (unlimited) or at least 1")
        for name in ("max_retry_duration", "min_backoff", "max_backoff"):
            if not 0 <= getattr(self, name) < inf:
                raise InvalidInput(f"{name} is {getattr(self, name)} s: want a finite number of at least 0")
        if self.min_backoff > self.max_backoff:
            raise InvalidInput(f"min_backoff is {self.min_backoff} s: want at most max_backoff, {self.max_backoff} s")
        if self.max_doublings < 0:
            raise InvalidInput(f"max_doublings is {self.max_doublings}: want at least 0")
        if not 0 <= self.jitter <= 1:
            raise InvalidInput(f"jitter is {self.jitter}: want 0 to 1")

    def delay(self, attempt: int, random: Random | None = None) -> float:
        """Return seconds to wait after failed attempt `attempt` (1 = the first): doublings, linear tail, then the cap.

        Without `random` there is no jitter.
        """
        doublings = min(attempt - 1, self.max_doublings)
        delay = ldexp(self.min_backoff, min(doublings, _MAX_EXPONENT)) * (attempt - doublings)
        delay = min(delay, self.max_backoff)
        return delay if random is None else delay * (1 - self.jitter * random.random())

    def exhausted(self, attempts: int, first_attempt_age: float) -> bool:
        """Tell whether a task that failed `attempts` times, first tried `first_attempt_age` seconds ago, is given up.

        Where both limits are set, both must be used up.
        """
        by_attempts = attempts >= self.max_attempts
        by_age = first_attempt_age > self.max_retry_duration
        if self.max_attempts == UNLIMITED:
            return self.max_retry_duration > 0 and by_age
        return by_attempts and (self.max_retry_duration == 0 or by_age)
