import pytest

from tally.clock import SECOND
from tally.errors import InvalidInput
from tally.tasks.rate import Meter, Ramp, Rate, RateLimits

START = 1_700_000_000 * SECOND


def dispatched(rate: Rate, start: int, end: int) -> int:
    """Take every token as soon as it is there, from start to end, waking only when the rate says so."""
    now, count = start, 0
    while now < end:
        ready_at = rate.ready_at(now)
        if ready_at is None:
            break
        if ready_at <= now:
            rate.take(now)
            count += 1
        else:
            now = ready_at
    return count


@pytest.mark.parametrize(
    ("per_second", "burst", "seconds"), [(500, 500, 4), (5, 5, 60), (0.1, 1, 300), (1 / 3, 2, 3000), (7.3, 20, 50)]
)
def test_a_busy_queue_gets_its_burst_and_then_its_rate(per_second: float, burst: int, seconds: int) -> None:
    rate = Rate(RateLimits(per_second=per_second, burst=burst), now=START)
    count = dispatched(rate, START, START + seconds * SECOND)
    assert abs(count - (burst + per_second * seconds)) <= 1


def test_a_rate_of_nothing_never_has_a_token() -> None:
    assert Rate(RateLimits(per_second=0), now=START).ready_at(START) is None


def test_an_idle_bucket_holds_no_more_than_its_burst() -> None:
    rate = Rate(RateLimits(per_second=100, burst=3), now=START)
    later = START + 3600 * SECOND
    for _ in range(3):
        assert rate.ready_at(later) == later
        rate.take(later)
    assert rate.ready_at(later) == later + SECOND // 100


def test_a_token_is_there_at_the_promised_instant_and_not_before() -> None:
    rate = Rate(RateLimits(per_second=3, burst=1), now=START)
    rate.take(START)
    promised = rate.ready_at(START)
    assert promised == START + 333_334
    assert rate.ready_at(promised - 10) == promised
    assert rate.ready_at(promised) == promised


def test_a_ramp_starts_slowly_doubles_and_starts_again_after_idling() -> None:
    limits = RateLimits(per_second=500, burst=500, ramp=Ramp(start=50, doubling=5, idle=60))
    rate = Rate(limits, now=START)
    assert [round(rate.enforced(START + s * SECOND)) for s in (0, 5, 10, 15, 20, 600)] == [50, 100, 200, 400, 500, 500]
    assert dispatched(rate, START, START + SECOND) < 160
    rate.take(START + 20 * SECOND)
    rate.take(START + 81 * SECOND)
    assert rate.enforced(START + 81 * SECOND) == 50


def test_overload_halves_the_rate_once_a_second_and_it_recovers() -> None:
    rate = Rate(RateLimits(per_second=400, burst=400), now=START)
    for _ in range(50):
        rate.record(success=False, overload=True, now=START)
    assert rate.enforced(START) == 200
    rate.record(success=False, overload=True, now=START + SECOND)
    assert 100 <= rate.enforced(START + SECOND) < 110
    assert rate.enforced(START + 40 * SECOND) == 400


def test_a_flood_of_overload_never_stops_the_queue() -> None:
    rate = Rate(RateLimits(per_second=500, burst=1), now=START)
    for second in range(100):
        rate.record(success=False, overload=True, now=START + second * SECOND)
    assert 0.2 < rate.enforced(START + 99 * SECOND) < 1


def test_many_plain_errors_slow_the_queue_and_few_do_not() -> None:
    few, many = (Rate(RateLimits(per_second=500), now=START) for _ in range(2))
    for n in range(200):
        few.record(success=n % 4 != 0, overload=False, now=START + n * SECOND // 10)
        many.record(success=n % 4 == 0, overload=False, now=START + n * SECOND // 10)
    assert few.enforced(START + 20 * SECOND) == 500
    assert many.enforced(START + 20 * SECOND) < 250


def test_new_limits_hold_at_once() -> None:
    rate = Rate(RateLimits(per_second=500, burst=500), now=START)
    rate.configure(RateLimits(per_second=1, burst=1), START)
    assert dispatched(rate, START, START + 10 * SECOND) in (10, 11)


def test_time_that_goes_back_gives_no_tokens() -> None:
    rate = Rate(RateLimits(per_second=1, burst=1), now=START)
    rate.take(START)
    assert rate.ready_at(START - 3600 * SECOND) == START - 3599 * SECOND
    assert rate.ready_at(START) == START + SECOND


@pytest.mark.parametrize(
    ("field", "value"), [("per_second", -1), ("per_second", float("nan")), ("burst", 0), ("concurrent", 0)]
)
def test_limits_that_make_no_sense_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        RateLimits(**{field: value})  # type: ignore[arg-type]  # one field of either number type


def test_the_meter_counts_the_last_minute() -> None:
    meter = Meter()
    for second in range(120):
        meter.add(START + second * SECOND)
    assert meter.total(START + 119 * SECOND) == 60
    assert meter.total(START + 149 * SECOND) == 30
    assert meter.total(START + 1000 * SECOND) == 0
