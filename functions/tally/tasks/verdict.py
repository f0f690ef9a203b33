"""What follows from how an attempt ended, as a value. Pure: runner.py performs it."""

from dataclasses import dataclass
from random import Random
from traceback import format_exception, format_exception_only
from typing import Literal, TypeAlias

from tally.clock import SECOND
from tally.retry import RetryPolicy
from tally.tasks.codec import Undecodable
from tally.tasks.context import Discard, Retry
from tally.tasks.failure import Failures
from tally.tasks.run import Run, State

# How an attempt that another follows ended; `events.AGAIN` has an event for each.
Ended: TypeAlias = Literal["failed", "retry", "interrupted"]
UNKNOWN = RetryPolicy(max_attempts=5, min_backoff=5.0, max_backoff=60.0)  # a deploy may be under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run ends. `parked` is the reason for which its delivery is kept for a replay, None: it is not."""

    state: State
    error: str
    traceback: str = ""
    parked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Another attempt follows in `delay` seconds; `counts`: this one counts against the policy."""

    delay: float
    outcome: Ended
    error: str
    traceback: str = ""
    counts: bool = True


INTERRUPTED = Wait(delay=0.0, outcome="interrupted", error="the worker was stopped", counts=False)
LATE = Wait(delay=1.0, outcome="interrupted", error="its place may have been given up meanwhile", counts=False)
EXPIRED = Finish(state=State.FAILED, error="it expired before it ran", parked="expired")


def judge(
    error: BaseException,
    run: Run,
    *,
    policy: RetryPolicy,
    failures: Failures,
    now: int,
    random: Random,
) -> Finish | Wait:
    """Decide what follows from what an attempt raised: nothing is dropped but by `Discard`."""
    if isinstance(error, Discard):
        return Finish(state=State.DISCARDED, error=error.message)
    undecodable = isinstance(error, Undecodable)
    policy = UNKNOWN if undecodable else policy
    text, trace = _texts(error)
    own = undecodable or isinstance(error, Retry)  # not for the function's rules about errors
    weight = "counts" if own else failures.weigh(error)
    if isinstance(error, Retry) and not error.counts:
        return _wait(error, run, policy, random, text)
    if weight == "free":
        delay = policy.delay(run.attempt, random)
        return Wait(delay=delay, outcome="failed", error=text, traceback=trace, counts=False)
    if weight == "fatal":
        return Finish(state=State.FAILED, error=text, traceback=trace, parked="fatal")
    age = (now - (now if run.first_started is None else run.first_started)) / SECOND
    if policy.exhausted(run.counted, age):
        if undecodable:
            return Finish(state=State.PARKED, error=text, parked="unknown or undecodable")
        return Finish(state=State.FAILED, error=text, traceback=trace, parked="exhausted")
    if isinstance(error, Retry):
        return _wait(error, run, policy, random, text)
    return Wait(delay=policy.delay(run.counted, random), outcome="failed", error=text, traceback=trace)


def _wait(error: Retry, run: Run, policy: RetryPolicy, random: Random, text: str) -> Wait:
    tries = run.counted if error.counts else run.attempt  # what does not count must not come ever so fast
    delay = policy.delay(tries, random) if error.after is None else error.after
    return Wait(delay=delay, outcome="retry", error=text, counts=error.counts)


def _texts(error: BaseException) -> tuple[str, str]:
    if isinstance(error, Retry | Undecodable):
        return error.message, ""
    return "".join(format_exception_only(error)).strip(), "".join(format_exception(error))
