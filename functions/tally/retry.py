"""Back-off as a value: how long to wait before the next try. Pure; the caller sleeps."""

from random import Random


def full_jitter(attempt: int, *, base: float, cap: float, random: Random) -> float:
    """Return seconds to wait before try `attempt` (1 = the first repetition), uniform in 0 … min(cap, base·2ⁿ).

    The algorithm is "full jitter" of M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    return random.uniform(0, min(cap, base * 2 ** min(attempt - 1, 32)))
