"""What the tests of the schedule share: when it starts, and how its tasks may end."""

from tally.clock import SECOND
from tally.retry import RetryPolicy
from tally.tasks.entry import Dispatch, Outcome
from tally.tasks.rate import RateLimits
from tally.tasks.schedule import Schedule

START = 1_700_000_000 * SECOND
OK = Outcome(success=True, status="200")
FAILED = Outcome(success=False, status="500")
OVERLOAD = Outcome(success=False, status="503", overload=True)
TEN_SECONDS = RetryPolicy(min_backoff=10, max_backoff=300, max_doublings=3)


def make(limits: RateLimits | None = None, retry: RetryPolicy = TEN_SECONDS) -> Schedule:
    return Schedule(limits or RateLimits(), retry, now=START)


def ids(dispatches: list[Dispatch]) -> list[str]:
    return [dispatch.entry.id for dispatch in dispatches]
