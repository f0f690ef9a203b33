"""When a schedule dispatches its tasks: by time, rate, concurrency, and after each failure."""

import tracemalloc
from collections import Counter
from random import Random

import pytest

from tally.clock import SECOND
from tally.errors import NotFound
from tally.retry import UNLIMITED, RetryPolicy
from tally.tasks.entry import DAY, DEADLINE_EXCEEDED, HOUR, MINUTE, Dispatch, Ending, Outcome
from tally.tasks.rate import Ramp, RateLimits
from tally.tasks.schedule import Schedule
from tests.unit.tasks.schedules import FAILED, OK, OVERLOAD, START, ids, make


def test_tasks_are_dispatched_by_eta_then_by_age() -> None:
    schedule = make()
    for task_id, eta in (("late", 30), ("b", None), ("a", -5), ("early", 10)):
        schedule.add(task_id, b"", now=START, eta=None if eta is None else START + eta * SECOND)
    assert ids(schedule.due(START)) == ["b", "a"]
    assert schedule.wake_at(START) == START + 10 * SECOND
    assert ids(schedule.due(START + 10 * SECOND - 1)) == []
    assert ids(schedule.due(START + 40 * SECOND)) == ["early", "late"]


def test_success_removes_the_task_and_its_second_answer_is_stale() -> None:
    schedule = make()
    schedule.add("a", b"body", now=START)
    [dispatch] = schedule.due(START)
    assert (dispatch.attempt, dispatch.entry.payload, dispatch.expires) == (1, b"body", START + 10 * MINUTE)
    settled = schedule.finish(dispatch, OK, START + 1)
    assert settled.ending is Ending.SUCCEEDED
    assert settled.entry is not None
    assert (settled.entry.dispatches, settled.entry.responses) == (1, 1)
    assert schedule.finish(dispatch, FAILED, START + 2).ending is Ending.STALE
    with pytest.raises(NotFound):
        schedule.get("a", START + 2)


def test_a_failing_task_waits_by_its_policy_until_it_is_given_up() -> None:
    schedule = make(retry=RetryPolicy(min_backoff=10, max_backoff=300, max_doublings=3, max_attempts=9))
    schedule.add("a", b"", now=START)
    now, waits = START, []
    while True:
        [dispatch] = schedule.due(now)
        settled = schedule.finish(dispatch, FAILED, now)
        if settled.ending is Ending.EXHAUSTED:
            break
        assert settled.entry is not None
        waits.append((settled.entry.eta - now) // SECOND)
        assert schedule.due(settled.entry.eta - 1) == []
        now = settled.entry.eta
    assert dispatch.previous is not None
    assert dispatch.previous.status == "500"
    assert waits == [10, 20, 40, 80, 160, 240, 300, 300]


def test_jitter_spreads_the_retries_when_there_is_randomness() -> None:
    retry = RetryPolicy(min_backoff=10, max_doublings=0, jitter=0.5)
    for random, distinct in ((None, 1), (Random(1), 20)):
        schedule = Schedule(RateLimits(), retry, now=START, random=random)
        for n in range(20):
            schedule.add(f"t{n}", b"", now=START)
        waits = set()
        for dispatch in schedule.due(START):
            settled = schedule.finish(dispatch, FAILED, START)
            assert settled.entry is not None
            waits.add(settled.entry.eta - START)
        assert len(waits) == distinct
        assert all(5 * SECOND <= wait <= 10 * SECOND for wait in waits)


def test_both_limits_must_be_used_up() -> None:
    schedule = make(retry=RetryPolicy(max_attempts=2, max_retry_duration=100, min_backoff=30, max_backoff=30))
    schedule.add("a", b"", now=START)
    now, endings = START, []
    for _ in range(5):
        [dispatch] = schedule.due(now)
        endings.append(schedule.finish(dispatch, FAILED, now).ending)
        now += 30 * SECOND
    assert endings == [Ending.RETRY] * 4 + [Ending.EXHAUSTED]


def test_unlimited_attempts_go_on_until_the_retention() -> None:
    retry = RetryPolicy(max_attempts=UNLIMITED, min_backoff=3600, max_doublings=0)
    schedule = make(retry=retry)
    schedule.add("a", b"", now=START)
    now, attempts = START, 0
    while schedule.stats(now).tasks:
        for dispatch in schedule.due(now):
            attempts += 1
            assert schedule.finish(dispatch, FAILED, now).ending is Ending.RETRY
        now = schedule.wake_at(now) or now
    assert now == START + 31 * DAY
    assert attempts == 31 * 24


def test_a_tasks_own_policy_overrides_the_queues() -> None:
    schedule = make()
    schedule.add("a", b"", now=START, retry=RetryPolicy(max_attempts=1))
    [dispatch] = schedule.due(START)
    assert schedule.finish(dispatch, FAILED, START).ending is Ending.EXHAUSTED


def test_the_target_may_ask_for_a_longer_wait_but_not_a_shorter_one() -> None:
    for asked, waited in ((60, 60), (1, 10)):
        schedule = make()
        schedule.add("a", b"", now=START)
        [dispatch] = schedule.due(START)
        outcome = Outcome(success=False, status="429", overload=True, retry_after=asked * SECOND)
        settled = schedule.finish(dispatch, outcome, START)
        assert settled.entry is not None
        assert settled.entry.eta == START + waited * SECOND


def test_overload_slows_the_whole_queue() -> None:
    schedule = make(RateLimits(per_second=100, burst=10))
    for n in range(500):
        schedule.add(f"t{n}", b"", now=START)
    for dispatch in schedule.due(START):
        schedule.finish(dispatch, OVERLOAD, START)
    assert schedule.stats(START).enforced_rate == 50
    assert schedule.stats(START + MINUTE).enforced_rate == 100


def test_concurrency_bounds_what_is_unanswered() -> None:
    schedule = make(RateLimits(concurrent=3))
    for n in range(5):
        schedule.add(f"t{n}", b"", now=START)
    first = schedule.due(START)
    assert len(first) == 3
    assert schedule.due(START) == []
    assert schedule.wake_at(START) == START + 10 * MINUTE
    schedule.finish(first[0], OK, START)
    assert ids(schedule.due(START)) == ["t3"]


def test_a_full_bucket_goes_at_once_and_the_rest_at_the_rate() -> None:
    schedule = make(RateLimits(per_second=2, burst=4))
    for n in range(10):
        schedule.add(f"t{n}", b"", now=START)
    now = START
    at: list[float] = []
    while len(at) < 10:
        at += [(now - START) / SECOND for _ in schedule.due(now)]
        now = schedule.wake_at(now) or now
    assert at == [0, 0, 0, 0, 0.5, 1, 1.5, 2, 2.5, 3]


def test_an_attempt_past_its_deadline_fails_and_its_late_answer_is_stale() -> None:
    schedule = make()
    schedule.add("a", b"", now=START, deadline=15 * SECOND)
    [dispatch] = schedule.due(START)
    assert schedule.wake_at(START) == START + 15 * SECOND
    assert schedule.overdue(START + 15 * SECOND - 1) == []
    late = START + 15 * SECOND
    assert schedule.overdue(late) == [dispatch]
    settled = schedule.finish(dispatch, DEADLINE_EXCEEDED, late)
    assert settled.ending is Ending.RETRY
    assert settled.entry is not None
    assert (settled.entry.dispatches, settled.entry.responses) == (1, 0)
    assert schedule.finish(dispatch, OK, late).ending is Ending.STALE
    assert schedule.get("a", late).eta == late + 10 * SECOND


def test_a_paused_queue_takes_tasks_and_sends_none() -> None:
    schedule = make()
    schedule.pause()
    schedule.add("a", b"", now=START)
    assert schedule.due(START) == []
    assert schedule.wake_at(START) == START + 31 * DAY
    schedule.resume(START + SECOND)
    assert ids(schedule.due(START + SECOND)) == ["a"]


def test_resuming_ramps_up_again() -> None:
    schedule = make(RateLimits(ramp=Ramp(start=50, doubling=5)))
    later = START + HOUR
    assert schedule.stats(later).enforced_rate == 500
    schedule.pause()
    schedule.resume(later)
    assert schedule.stats(later).enforced_rate == 50


def test_forcing_ignores_pause_rate_concurrency_and_eta() -> None:
    schedule = make(RateLimits(per_second=0, concurrent=1))
    schedule.pause()
    for task_id in ("a", "b"):
        schedule.add(task_id, b"", now=START, eta=START + DAY)
    forced = [schedule.force(task_id, START + SECOND) for task_id in ("a", "b")]
    assert schedule.stats(START).in_flight == 2
    assert schedule.finish(forced[0], OK, START + SECOND).ending is Ending.SUCCEEDED
    settled = schedule.finish(forced[1], FAILED, START + 3 * SECOND)
    assert settled.entry is not None
    assert settled.entry.eta == START + 11 * SECOND


@pytest.mark.parametrize(
    ("first", "second", "endings"),
    [
        (FAILED, FAILED, [Ending.RUNNING, Ending.RETRY]),
        (FAILED, OK, [Ending.RUNNING, Ending.SUCCEEDED]),
        (OK, FAILED, [Ending.SUCCEEDED, Ending.STALE]),
        (OK, OK, [Ending.SUCCEEDED, Ending.STALE]),
    ],
)
def test_a_task_forced_while_it_runs_has_two_attempts(first: Outcome, second: Outcome, endings: list[Ending]) -> None:
    schedule = make()
    schedule.add("a", b"", now=START)
    [running] = schedule.due(START)
    forced = schedule.force("a", START + SECOND)
    assert (running.attempt, forced.attempt) == (1, 2)
    now = START + 2 * SECOND
    assert [schedule.finish(running, first, now).ending, schedule.finish(forced, second, now).ending] == endings


def test_new_settings_hold_at_once() -> None:
    schedule = make(RateLimits(concurrent=1))
    for n in range(3):
        schedule.add(f"t{n}", b"", now=START)
    assert len(schedule.due(START)) == 1
    schedule.configure(RateLimits(concurrent=2), RetryPolicy(max_attempts=1), START)
    [second] = schedule.due(START)
    assert schedule.finish(second, FAILED, START).ending is Ending.EXHAUSTED


def test_statistics_count_what_waits_what_is_out_and_what_was_done() -> None:
    schedule = make()
    for n in range(4):
        schedule.add(f"t{n}", b"", now=START, eta=START + max(0, n - 1) * MINUTE)
    first, _ = schedule.due(START)
    schedule.finish(first, OK, START)
    stats = schedule.stats(START)
    assert (stats.tasks, stats.in_flight, stats.oldest_eta) == (3, 1, START + MINUTE)
    assert (stats.executed_last_minute, stats.enforced_rate) == (1, 500)


@pytest.mark.parametrize("seed", range(10))
def test_under_random_use_no_task_is_lost_and_memory_follows_the_live(seed: int) -> None:
    random = Random(seed)
    schedule = make(RateLimits(per_second=50, burst=20, concurrent=10), RetryPolicy(max_attempts=4, min_backoff=1))
    now = START
    open_attempts: list[Dispatch] = []
    live: set[str] = set()
    attempts: Counter[str] = Counter()
    for step in range(2_000):
        now += random.randrange(SECOND // 4)
        choice = random.random()
        if choice < 0.4:
            schedule.add(f"t{step}", b"", now=now, eta=now + random.randrange(5 * SECOND), named=False)
            live.add(f"t{step}")
        elif choice < 0.45 and live:
            victim = random.choice(sorted(live))
            schedule.delete(victim, now)
            live.discard(victim)
        elif choice < 0.5 and live:
            open_attempts.append(schedule.force(random.choice(sorted(live)), now))
        elif open_attempts:
            dispatch = open_attempts.pop(random.randrange(len(open_attempts)))
            settled = schedule.finish(dispatch, random.choice((OK, FAILED, FAILED, OVERLOAD)), now)
            if settled.ending in (Ending.SUCCEEDED, Ending.EXHAUSTED):
                live.discard(dispatch.entry.id)
        new = schedule.due(now)
        attempts.update(dispatch.entry.id for dispatch in new)
        open_attempts += new
        assert {entry.id for entry in schedule.tasks(now)} == live
        assert len(schedule._waiting) <= 2 * len(live) + 65
    for _ in range(100_000):
        if not live:
            break
        for dispatch in [*open_attempts, *schedule.due(now)]:
            if schedule.finish(dispatch, OK, now).ending is Ending.SUCCEEDED:
                live.discard(dispatch.entry.id)
        open_attempts.clear()
        now = max(now + 1, schedule.wake_at(now) or now)
    assert not live
    assert attempts


def test_waiting_tasks_cost_little_memory() -> None:
    schedule = make()
    tracemalloc.start()
    try:
        for n in range(10_000):
            schedule.add(f"{n:032x}", b"%0200d" % n, now=START, eta=START + n * SECOND)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / 10_000 < 1_500
