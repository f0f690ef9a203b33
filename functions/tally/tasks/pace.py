"""How many tasks a worker takes, from which queue first, and how often it asks. Pure: the executor does as it says."""

from collections.abc import Sequence
from dataclasses import dataclass

from tally import limits
from tally.errors import InvalidInput

LOOK_MIN, LOOK_MAX = 5.0, 30.0  # seconds between looks at the backlog, each of which costs some queries a shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Concurrency and poll interval (seconds) stay between these; where they lie follows the backlog."""

    at_least: int = 4
    at_most: int = 100
    poll_min: float = 0.05
    poll_max: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.at_least <= self.at_most <= limits.POOL_WORKERS:
            raise InvalidInput(
                f"concurrency {self.at_least} to {self.at_most}: want 1 to {limits.POOL_WORKERS}, the least first"
            )
        if not 0 < self.poll_min <= self.poll_max:
            raise InvalidInput(f"poll interval {self.poll_min} to {self.poll_max} s: want more than 0, the least first")


def concurrency(now: int, *, backlog: int, running: int, bounds: Bounds) -> int:
    """Return the next limit: twice as many while all are busy and more wait, half as many when half would do."""
    if backlog > 0 and running >= now:
        return min(bounds.at_most, 2 * now)
    if backlog == 0 and 2 * running < now:
        return max(bounds.at_least, now // 2)
    return now


def poll(now: float, *, found: bool, bounds: Bounds) -> float:
    """Return the seconds to wait before asking empty queues again: doubling, and back to the least after a find."""
    return bounds.poll_min if found else min(bounds.poll_max, 2 * now)


def look(now: float, *, idle: bool) -> float:
    """Return the seconds until the next look at the backlog: doubling while there is none and nothing runs."""
    return min(LOOK_MAX, 2 * now) if idle else LOOK_MIN


def shares(weights: Sequence[int], room: int, *, strict: bool, turn: int) -> list[tuple[int, int]]:
    """Split room for tasks: (place of the queue, how many to ask it for), in the order to ask.

    Strict: all of it to the heaviest first; what it leaves goes to the next. Weighted: each its share by weight, at
    least one, the order turning with each round so that small room does not starve the light ones; then all of the
    rest in the same order.
    """
    order = sorted(range(len(weights)), key=lambda place: -weights[place])
    if strict:
        return [(place, room) for place in order]
    slots = [place for place in order for _ in range(weights[place])]
    first = slots[turn % len(slots)]
    order = [first, *(place for place in order if place != first)]
    total = sum(weights)
    return [*((place, max(1, room * weights[place] // total)) for place in order), *((place, room) for place in order)]
