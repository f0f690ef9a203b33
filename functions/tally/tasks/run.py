"""A run: one call of a task function on its way, as a value, and each step of its life as a pure function.

    queued ──claim──> running ──> done | failed | discarded | parked
       │                │ ▲
       │                ▼ │ claim
       └──> cancelled  waiting (for its next attempt)

A claim carries a token and an expiry; only its holder may beat or finish it, and an expired one may be taken by
another worker. `hop` numbers the push deliveries of a run: one that is behind it is a leftover and starts nothing,
but sees to it that the next one is there (its sender may have died before it sent it).
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from tally import limits
from tally.clock import SECOND
from tally.tasks.blobs import Blob

VERSION = 1
NULL = msgspec.Raw(b"null")
EARLY = SECOND  # a delivery may come this much before its time, by our clock
DAY = 86_400 * SECOND
KEEP_MIN = 3_600.0  # seconds: an ended run is known that long in any case, so that a late copy starts nothing
UNRUN = 62 * DAY  # how long the record of a run that never ends is kept beyond its time


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"
    PARKED = "parked"


ENDED = frozenset({State.DONE, State.FAILED, State.DISCARDED, State.CANCELLED, State.PARKED})


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: instants in µs; `outcome` is empty while it runs, then done, failed, retry, lost, …"""

    number: int
    worker: str
    started: int
    ended: int | None = None
    outcome: str = ""
    error: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch` is the instant of its enqueue: a later run of the same id has another. `due`: when it may run next.

    `keep`: seconds that the record stays after the end, None for ever. `counted` counts the attempts that its retry
    policy counts. `settled` is the token of the last claim that was finished.
    """

    id: str
    call: str
    queue: str
    epoch: int
    due: int
    keep: float | None
    state: State = State.QUEUED
    hop: int = 0
    attempt: int = 0
    counted: int = 0
    first_started: int | None = None
    attempts: tuple[Attempt, ...] = ()
    token: str = ""
    until: int = 0
    settled: str = ""
    progress: msgspec.Raw = NULL
    result: msgspec.Raw = NULL
    blob: Blob | None = None
    error: str = ""
    traceback: str = ""
    ended: int | None = None
    v: int = VERSION

    @property
    def expires(self) -> int | None:
        """Return the instant (µs) from which the record counts as gone; not while a delivery may still come."""
        if self.keep is None:
            return None
        kept = round(max(self.keep, KEEP_MIN) * SECOND)
        delivered = self.ended is not None and self.state is not State.CANCELLED
        return kept + (self.ended or 0 if delivered else max(self.due, self.ended or 0) + UNRUN)


class Claimed(msgspec.Struct, frozen=True):
    """The run is ours."""

    run: Run


class Later(msgspec.Struct, frozen=True):
    """Deliver again at `at` (µs), to a push queue as hop number `run.hop`; `run` is to be stored before."""

    run: Run
    at: int


class Over(msgspec.Struct, frozen=True):
    """The run has ended: nothing to do for this delivery."""

    run: Run


def claim(
    run: Run, *, token: str, worker: str, now: int, lease: int, hop: int | None, full_until: int | None = None
) -> Claimed | Later | Over:
    """Decide what a delivery finds: a run to start, one to come back for, or one that is over.

    `full_until`: no place is free for it, and it shall come back then.
    """
    if run.token == token and run.state is State.RUNNING:
        return Claimed(run)  # our claim was applied and its reply lost
    if run.state in ENDED:
        return Over(run)
    if hop is not None and hop < run.hop:
        return Later(run, run.until + SECOND if run.state is State.RUNNING else run.due)
    if run.state is State.RUNNING and now < run.until:
        return _again(run, run.until + SECOND, hop)
    if run.state is not State.RUNNING and now < run.due - EARLY:
        return _again(run, run.due, hop)
    if full_until is not None:
        return _again(run, full_until, hop)
    run = _close_attempt(run, now, "lost", "the worker stopped without a word") if run.token else run
    attempt = Attempt(number=run.attempt + 1, worker=worker, started=now)
    return Claimed(
        replace(
            run,
            state=State.RUNNING,
            attempt=attempt.number,
            counted=run.counted + 1,
            first_started=now if run.first_started is None else run.first_started,
            attempts=(*run.attempts, attempt)[-limits.ATTEMPTS_KEPT :],
            token=token,
            until=now + lease,
        )
    )


def beat(run: Run, *, token: str, now: int, lease: int, progress: bytes | None) -> Run | None:
    """Keep a claim alive; None when it is ours no more."""
    if run.token != token or run.state is not State.RUNNING:
        return None
    shown = run.progress if progress is None else msgspec.Raw(progress)
    return replace(run, until=max(run.until, now + lease), progress=shown)


def end(
    run: Run,
    *,
    token: str,
    now: int,
    state: State,
    progress: bytes | None = None,
    result: msgspec.Raw = NULL,
    blob: Blob | None = None,
    error: str = "",
    traceback: str = "",
) -> Run | None:
    """Finish a run for good; None when the claim is ours no more."""
    if run.settled == token:
        return run
    if run.token != token or run.state is not State.RUNNING:
        return None
    run = _close_attempt(run, now, str(state), error)
    return replace(
        run,
        state=state,
        progress=run.progress if progress is None else msgspec.Raw(progress),
        result=result,
        blob=blob,
        error=short(error),
        traceback=short(traceback),
        ended=now,
    )


def wait(
    run: Run, *, token: str, now: int, due: int, outcome: str, error: str, traceback: str, counts: bool, push: bool
) -> Run | None:
    """Finish an attempt that is to be followed by another at `due`; None when the claim is ours no more."""
    if run.settled == token:
        return run
    if run.token != token or run.state is not State.RUNNING:
        return None
    run = _close_attempt(run, now, outcome, error)
    return replace(
        run,
        state=State.WAITING,
        due=due,
        hop=run.hop + push,
        counted=run.counted if counts else run.counted - 1,
        error=short(error),
        traceback=short(traceback),
    )


def hurry(run: Run, *, now: int) -> Run:
    """Make a run that waits for its time or its next attempt due now."""
    return replace(run, due=now) if run.state in (State.QUEUED, State.WAITING) and run.due > now else run


def cancel(run: Run, *, now: int) -> Run:
    """Cancel a run that has not ended; one that runs loses its claim."""
    if run.state in ENDED:
        return run
    run = _close_attempt(run, now, "cancelled", "") if run.token else run
    return replace(run, state=State.CANCELLED, ended=now)


def short(text: str) -> str:
    """Cut a long text in the middle, to RUN_ERROR_BYTES of UTF-8."""
    data = text.encode(errors="backslashreplace")
    if len(data) <= limits.RUN_ERROR_BYTES:
        return data.decode()
    half = limits.RUN_ERROR_BYTES // 2 - 8
    return f"{data[:half].decode(errors='ignore')}\n…\n{data[-half:].decode(errors='ignore')}"


def _again(run: Run, at: int, hop: int | None) -> Later:
    return Later(run if hop is None else replace(run, hop=hop + 1), at)


def _close_attempt(run: Run, now: int, outcome: str, error: str) -> Run:
    attempts = run.attempts
    if attempts and attempts[-1].ended is None:
        line = error.strip().splitlines()[-1][:300] if error.strip() else ""
        attempts = (*attempts[:-1], replace(attempts[-1], ended=now, outcome=outcome, error=line))
    return replace(run, attempts=attempts, token="", until=0, settled=run.token)


def encode(run: Run) -> bytes:
    return msgspec.json.encode(run)


def decode(data: bytes) -> Run:
    return msgspec.json.decode(data, type=Run)


def view(run: Run) -> dict[str, Any]:
    """Return what people and programs are shown of a run."""
    fields = msgspec.json.decode(encode(run))
    hidden = ("token", "until", "settled", "hop", "v", "blob", "result")
    shown = {name: value for name, value in fields.items() if name not in hidden}
    shown["result_bytes"] = run.blob.size if run.blob else len(run.result)
    return shown
