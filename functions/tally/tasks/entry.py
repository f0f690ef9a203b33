"""The values of a push queue's schedule: a task, its attempts, what an answer does. Instants and durations are µs."""

from dataclasses import dataclass
from enum import Enum

from tally.clock import SECOND
from tally.retry import RetryPolicy

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One dispatch: instants in µs. `responded` is None while it runs; `status` is the owner's word for the answer."""

    scheduled: int
    dispatched: int
    responded: int | None = None
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A task in the schedule. `payload` is the owner's; `sequence` tells it from an earlier task of the same id.

    `dispatches` counts attempts sent, `responses` those answered in time, `running` those open; `retry` overrides
    the queue's policy; `deadline` is how long an attempt may take; a `named` id stays taken when the task is gone.
    """

    id: str
    sequence: int
    created: int
    eta: int
    payload: bytes
    deadline: int = 10 * MINUTE
    retry: RetryPolicy | None = None
    named: bool = False
    dispatches: int = 0
    responses: int = 0
    running: int = 0
    first_dispatch: int | None = None
    last: Attempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """An attempt to perform now: number `attempt` (1 = first) of `entry`, to be answered before `expires`.

    `previous` is the attempt before it, answered or not.
    """

    entry: Entry
    attempt: int
    expires: int
    previous: Attempt | None = None
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended. `overload` slows the whole queue; `retry_after` is the least wait the target asked for;
    `answered` is False when no answer came."""

    success: bool
    status: str
    overload: bool = False
    retry_after: int = 0
    answered: bool = True


DEADLINE_EXCEEDED = Outcome(success=False, status="DEADLINE_EXCEEDED", answered=False)


class Ending(Enum):
    SUCCEEDED = "succeeded"  # gone
    RETRY = "retry"  # waits for its next attempt
    EXHAUSTED = "exhausted"  # given up, gone
    RUNNING = "running"  # another attempt of it still runs
    STALE = "stale"  # the task was gone before this answer came


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What an answer did. `entry` is the task's last state (None when stale)."""

    ending: Ending
    entry: Entry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """`oldest_eta` of the waiting tasks, µs; `executed_last_minute` counts successes."""

    tasks: int
    in_flight: int
    oldest_eta: int | None
    executed_last_minute: int
    enforced_rate: float
