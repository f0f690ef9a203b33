"""The steps of a run's life: who may take which, and what a stranger's, a late or a repeated one does."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from tally.clock import SECOND
from tally.tasks import run as steps
from tally.tasks.run import EARLY, ENDED, Attempt, Claimed, Later, Over, Run, State

NOW = 1_000 * SECOND
LEASE = 60 * SECOND

NEW = Run(id="r", call="f", queue="q", epoch=1, due=NOW, keep=60)
HELD = replace(
    NEW,
    state=State.RUNNING,
    attempt=3,
    counted=3,
    attempts=(Attempt(number=3, worker="w3", started=NOW),),
    token="third",
    settled="second",
    until=NOW + LEASE,
)
Step = Callable[..., Run | None]
WAIT = partial(steps.wait, due=NOW + 5, outcome="retry", error="", traceback="", counts=True, push=True)
FINISHES: dict[str, Step] = {
    **{state: partial(steps.end, state=state) for state in sorted(ENDED - {State.CANCELLED})},
    "wait": WAIT,
}
HOLDS: dict[str, Step] = {**FINISHES, "beat": partial(steps.beat, lease=LEASE, progress=None)}


def claim(run: Run, token: str = "new", hop: int | None = None, now: int = NOW) -> Claimed | Later | Over:
    return steps.claim(run, token=token, worker="w", now=now, lease=LEASE, hop=hop)


@pytest.mark.parametrize("name", HOLDS)
def test_the_holder_of_a_claim_may_take_any_step(name: str) -> None:
    assert HOLDS[name](HELD, token="third", now=NOW + 1) not in (None, HELD)


@pytest.mark.parametrize("name", HOLDS)
@pytest.mark.parametrize("token", ["first", "", "third's"])
def test_a_claim_that_was_lost_two_claims_ago_can_do_nothing(name: str, token: str) -> None:
    """The last but one is known as the one that was settled last; an older one only by not being the holder."""
    assert HOLDS[name](HELD, token=token, now=NOW) is None


@pytest.mark.parametrize("name", HOLDS)
def test_the_claim_before_can_change_nothing(name: str) -> None:
    assert HOLDS[name](HELD, token="second", now=NOW) in (None, HELD)


@pytest.mark.parametrize("name", FINISHES)
@pytest.mark.parametrize("then", FINISHES)
def test_what_a_claim_has_finished_stays_as_it_is(name: str, then: str) -> None:
    finished = FINISHES[name](HELD, token="third", now=NOW)
    assert finished is not None
    assert (finished.token, finished.settled) == ("", "third")
    assert FINISHES[then](finished, token="third", now=NOW + 1) is finished, "said twice: a reply that was lost"
    assert FINISHES[then](finished, token="second", now=NOW + 1) is None
    assert steps.beat(finished, token="third", now=NOW, lease=LEASE, progress=None) is None


@pytest.mark.parametrize("name", HOLDS)
@pytest.mark.parametrize("state", sorted(set(State) - {State.RUNNING}))
def test_no_step_of_a_claim_is_taken_on_a_run_that_is_not_at_work(name: str, state: State) -> None:
    for token in ("", "third"):
        run = replace(HELD, state=state, token=token, settled="")
        assert HOLDS[name](run, token="third", now=NOW) is None


@pytest.mark.parametrize(("until", "now", "got"), [(NOW + 1, NOW, Later), (NOW, NOW, Claimed), (NOW - 1, NOW, Claimed)])
def test_a_run_at_work_is_claimed_once_its_claim_is_over(until: int, now: int, got: type) -> None:
    found = claim(replace(HELD, until=until), now=now)
    assert isinstance(found, got)
    if isinstance(found, Later):
        assert (found.run, found.at) == (replace(HELD, until=until), until + SECOND)
    else:
        assert [each.outcome for each in found.run.attempts] == ["lost", ""]
        assert (found.run.token, found.run.settled, found.run.attempt) == ("new", "third", 4)
        assert found.run.until == now + LEASE


@pytest.mark.parametrize("state", [State.QUEUED, State.WAITING])
@pytest.mark.parametrize(("early", "got"), [(EARLY + 1, Later), (EARLY, Claimed), (0, Claimed)])
def test_a_run_is_claimed_at_its_time_or_a_little_before(state: State, early: int, got: type) -> None:
    assert isinstance(claim(replace(NEW, state=state), now=NOW - early), got)


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("hop", [None, 0, 7])
def test_a_run_that_has_ended_is_over_for_any_delivery(state: State, hop: int | None) -> None:
    run = replace(HELD, state=state, token="", hop=5)
    assert claim(run, hop=hop) == Over(run)


def test_a_claim_whose_reply_was_lost_is_found_and_counts_once() -> None:
    found = claim(NEW)
    assert isinstance(found, Claimed)
    assert claim(found.run) == found
    assert found.run.attempt == found.run.counted == 1


@pytest.mark.parametrize(
    ("hop", "got"), [(1, Later), (2, Claimed), (3, Claimed)], ids=["left over", "its own", "ahead of the record"]
)
def test_a_delivery_that_is_behind_its_run_starts_nothing(hop: int, got: type) -> None:
    found = claim(replace(NEW, hop=2), hop=hop)
    assert isinstance(found, got)
    if isinstance(found, Later):
        assert (found.run.hop, found.at) == (2, NOW), "the next one is sent again, and not a new one"


def test_a_beat_never_shortens_a_claim_and_carries_progress() -> None:
    beaten = steps.beat(HELD, token="third", now=NOW - LEASE, lease=SECOND, progress=b"1")
    assert beaten == replace(HELD, progress=msgspec.Raw(b"1"))


@pytest.mark.parametrize("state", sorted(State))
def test_only_what_has_not_ended_is_cancelled(state: State) -> None:
    run = replace(HELD, state=state, token="third" if state is State.RUNNING else "")
    cancelled = steps.cancel(run, now=NOW)
    assert (cancelled is run) == (state in ENDED)
    if state not in ENDED:
        assert (cancelled.state, cancelled.token, cancelled.ended) == (State.CANCELLED, "", NOW)
        assert WAIT(cancelled, token="third", now=NOW) in (None, cancelled), "its holder finds it lost"


@pytest.mark.parametrize(("counts", "counted"), [(True, 3), (False, 2)])
def test_an_attempt_that_does_not_count_is_taken_back(counts: bool, counted: int) -> None:
    waiting = steps.wait(
        HELD, token="third", now=NOW, due=NOW + 9, outcome="retry", error="e", traceback="", counts=counts, push=True
    )
    assert waiting is not None
    assert (waiting.state, waiting.counted, waiting.due, waiting.hop) == (State.WAITING, counted, NOW + 9, 1)
