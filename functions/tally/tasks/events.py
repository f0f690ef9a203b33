"""What happens to runs of task functions, as values.

    @on(Kind.FAILED, Kind.DEAD_LETTERED)
    async def tell_someone(event: RunEvent) -> None: ...

An event is told by the worker that did what it says, once that is in the store (middleware.py): at most once, as a
worker may die in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tally.clock import SECOND
from tally.errors import InvalidInput
from tally.tasks.run import Run, State


class Kind(StrEnum):
    """`retried`: an attempt failed and another follows; `snoozed`: by `Retry`; `interrupted`: by a worker's stop.

    `rescued`: an attempt whose worker fell silent is taken over; `lost`: so was this one, or it was cancelled.
    `failed`: the run is over without a result; `dead-lettered`: its call is parked, with the reason.
    """

    STARTED = "started"
    RESCUED = "rescued"
    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    DISCARDED = "discarded"
    DEAD_LETTERED = "dead-lettered"
    LOST = "lost"


# By how an attempt that another follows ended (Attempt.outcome), and by how a run did.
AGAIN = {"failed": Kind.RETRIED, "retry": Kind.SNOOZED, "interrupted": Kind.INTERRUPTED}
ENDS = {State.DONE: Kind.SUCCEEDED, State.FAILED: Kind.FAILED, State.DISCARDED: Kind.DISCARDED}
OVER = frozenset({*ENDS, State.PARKED})  # what a worker may end a run as


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """`id` names the run, `task` the function ("" when it is not known), `at` is in µs.

    `waited`: seconds from when the attempt was due to its start; `ran`: seconds from then on, None before it ended.
    `error`: the last one; `reason`: why its call was parked; `delay`: seconds until the attempt that follows.
    """

    kind: Kind
    id: str
    task: str
    queue: str
    attempt: int
    worker: str
    at: int
    waited: float = 0.0
    ran: float | None = None
    error: str = ""
    reason: str = ""
    delay: float | None = None


def started(run: Run, worker: str) -> list[RunEvent]:
    """Return the events of a run that was just claimed: it is started, and rescued before if it was another's."""
    *before, attempt = run.attempts
    events = [_of(run, Kind.STARTED, attempt.started, worker, run)]
    if before and before[-1].outcome == "lost" and before[-1].ended == attempt.started:
        events.insert(0, _of(run, Kind.RESCUED, attempt.started, worker, run, error=before[-1].error))
    return events


def again(run: Run, claimed: Run, worker: str, *, at: int, delay: float) -> list[RunEvent]:
    """Return the event of an attempt that another follows: `run` as it is now, `claimed` as the attempt found it."""
    kind = AGAIN[run.attempts[-1].outcome]
    return [_of(run, kind, at, worker, claimed, error=run.error, delay=delay)]


def ended(run: Run, claimed: Run, worker: str, *, at: int, parked: str | None) -> list[RunEvent]:
    """Return the events of a run that is over; `parked` is the reason for which its call was."""
    kinds = [ENDS[run.state]] if run.state in ENDS else []
    kinds += [Kind.DEAD_LETTERED] if parked is not None else []
    return [_of(run, kind, at, worker, claimed, error=run.error, reason=parked or "") for kind in kinds]


def lost(claimed: Run, worker: str, *, at: int) -> list[RunEvent]:
    """Return the event of an attempt whose run was cancelled or taken over meanwhile."""
    return [_of(claimed, Kind.LOST, at, worker, claimed)]


def kinds_of(names: Sequence[str]) -> frozenset[Kind]:
    """Return the kinds of these names, all when there is none. Raises InvalidInput."""
    known = {str(kind) for kind in Kind}
    for name in names:
        if name not in known:
            raise InvalidInput(f"event {name!r}: want one of {', '.join(Kind)}")
    return frozenset(map(Kind, names or Kind))


def _of(
    run: Run,
    kind: Kind,
    at: int,
    worker: str,
    claimed: Run,
    *,
    error: str = "",
    reason: str = "",
    delay: float | None = None,
) -> RunEvent:
    begun = claimed.attempts[-1].started if claimed.attempts else at
    return RunEvent(
        kind=kind,
        id=run.id,
        task=run.call,
        queue=run.queue,
        attempt=run.attempt,
        worker=worker,
        at=at,
        waited=max(0, begun - claimed.due) / SECOND,
        ran=None if kind in (Kind.STARTED, Kind.RESCUED) else max(0, at - begun) / SECOND,
        error=error,
        reason=reason,
        delay=delay,
    )
