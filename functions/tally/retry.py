"""Back-off as a value: how long to wait before the next try. Pure; the caller sleeps."""

from dataclasses import dataclass
from math import inf, ldexp
from random import Random
from typing import Literal

from tally.errors import InvalidInput

UNLIMITED = -1
_MAX_EXPONENT = 1_000  # keeps the product a float; every cap is below it
Growth = Literal["doubling", "fibonacci"]
GiveUp = Literal["both", "either"]


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

    Two more than Cloud Tasks has: `growth` "fibonacci" multiplies `min_backoff` by 1, 2, 3, 5, 8, … instead; `give_up`
    says whether a task is given up when "both" limits are used up (its rule, and App Engine's) or "either".
    """

    max_attempts: int = 100
    max_retry_duration: float = 0.0
    min_backoff: float = 0.1
    max_backoff: float = 3600.0
    max_doublings: int = 16
    jitter: float = 0.0
    growth: Growth = "doubling"
    give_up: GiveUp = "both"

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
        if self.growth not in ("doubling", "fibonacci"):
            raise InvalidInput(f"growth is {self.growth!r}: want doubling or fibonacci")
        if self.give_up not in ("both", "either"):
            raise InvalidInput(f"give_up is {self.give_up!r}: want both or either")

    def delay(self, attempt: int, random: Random | None = None) -> float:
        """Return seconds to wait after failed attempt `attempt` (1 = the first): it grows up to the cap.

        Without `random` there is no jitter.
        """
        grown = self._fibonacci(attempt) if self.growth == "fibonacci" else self._doubled(attempt)
        delay = min(grown, self.max_backoff)
        return delay if random is None else delay * (1 - self.jitter * random.random())

    def exhausted(self, attempts: int, first_attempt_age: float) -> bool:
        """Tell whether a task that failed `attempts` times, first tried `first_attempt_age` seconds ago, is given up.

        Where both limits are set, `give_up` says whether both must be used up.
        """
        used_up = [] if self.max_attempts == UNLIMITED else [attempts >= self.max_attempts]
        if self.max_retry_duration > 0:
            used_up.append(first_attempt_age > self.max_retry_duration)
        return bool(used_up) and (any(used_up) if self.give_up == "either" else all(used_up))

    def _doubled(self, attempt: int) -> float:
        """Doublings, then a linear tail."""
        doublings = min(attempt - 1, self.max_doublings)
        return ldexp(self.min_backoff, min(doublings, _MAX_EXPONENT)) * (attempt - doublings)

    def _fibonacci(self, attempt: int) -> float:
        before, factor = 1.0, 1.0
        for _ in range(min(attempt - 1, _MAX_EXPONENT)):
            before, factor = factor, before + factor
        return self.min_backoff * factor
