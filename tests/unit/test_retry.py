import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tally.errors import InvalidInput
from tally.retry import UNLIMITED, RetryPolicy, full_jitter

VECTORS: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "vectors" / "retry.json").read_text())


def test_full_jitter_stays_below_the_doubled_base_and_the_cap() -> None:
    random = Random(1)
    for attempt, bound in ((1, 0.5), (2, 1.0), (3, 2.0), (10, 20.0), (10_000, 20.0)):
        waits = [full_jitter(attempt, base=0.5, cap=20, random=random) for _ in range(200)]
        assert 0 <= min(waits) <= max(waits) <= bound
        assert max(waits) > bound * 0.8


def policy(row: dict[str, Any]) -> RetryPolicy:
    return RetryPolicy(**{name: row[name] for name in ("min_backoff", "max_backoff", "max_doublings")})


@pytest.mark.parametrize("row", VECTORS["documented"])
def test_delays_are_those_of_the_documented_text(row: dict[str, Any]) -> None:
    retry = policy(row)
    assert [retry.delay(attempt) for attempt in range(1, len(row["delays"]) + 1)] == row["delays"]


@pytest.mark.parametrize("row", VECTORS["fibonacci"])
def test_fibonacci_delays_are_those_of_machinery(row: dict[str, Any]) -> None:
    retry = replace(policy(row), growth="fibonacci")
    assert [retry.delay(attempt) for attempt in range(1, len(row["delays"]) + 1)] == row["delays"]
    assert retry.delay(1_000_000) == row["max_backoff"]


@pytest.mark.parametrize(
    ("attempts", "age", "both", "either"),
    [(2, 59, False, False), (3, 59, False, True), (2, 61, False, True), (3, 61, True, True)],
)
def test_two_limits_end_a_task_both_or_either(attempts: int, age: float, both: bool, either: bool) -> None:
    retry = RetryPolicy(max_attempts=3, max_retry_duration=60)
    assert retry.exhausted(attempts, age) is both
    assert replace(retry, give_up="either").exhausted(attempts, age) is either


def test_one_limit_alone_ends_a_task_whatever_the_rule() -> None:
    for give_up in ("both", "either"):
        assert RetryPolicy(max_attempts=3, give_up=give_up).exhausted(3, 0)
        assert RetryPolicy(max_attempts=UNLIMITED, max_retry_duration=9, give_up=give_up).exhausted(1, 10)
        assert not RetryPolicy(max_attempts=UNLIMITED, give_up=give_up).exhausted(1_000, 1e9)


@pytest.mark.parametrize("row", VECTORS["app_engine"])
def test_delays_are_those_of_app_engine(row: dict[str, Any]) -> None:
    retry = policy(row)
    delays = {attempt: round(retry.delay(int(attempt)) * 1_000_000) for attempt in row["delays_us"]}
    assert delays == row["delays_us"]


@pytest.mark.parametrize("row", VECTORS["app_engine_limits"])
def test_a_task_is_given_up_when_app_engine_would(row: dict[str, Any]) -> None:
    retry = RetryPolicy(
        max_attempts=UNLIMITED if row["retry_limit"] is None else row["retry_limit"] + 1,
        max_retry_duration=row["age_limit"] or 0,
    )
    assert retry.exhausted(row["failed_attempts"], row["age"]) is not row["retried"]


def test_a_huge_attempt_number_or_doubling_stays_at_the_cap() -> None:
    retry = RetryPolicy(min_backoff=1, max_backoff=3600, max_doublings=2**31 - 1)
    assert retry.delay(1_000_000) == 3600


def test_jitter_takes_off_its_share_at_most() -> None:
    retry = RetryPolicy(min_backoff=10, jitter=0.25)
    random = Random(2)
    delays = [retry.delay(1, random) for _ in range(500)]
    assert 7.5 <= min(delays) < 7.6
    assert 9.9 < max(delays) <= 10
    assert retry.delay(1) == 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", -2),
        ("max_retry_duration", -1),
        ("min_backoff", float("nan")),
        ("max_backoff", float("inf")),
        ("min_backoff", 3601),
        ("max_doublings", -1),
        ("jitter", 1.1),
        ("growth", "linear"),
        ("give_up", "neither"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(field: str, value: float | str) -> None:
    with pytest.raises(InvalidInput, match=field):
        RetryPolicy(**{field: value})  # type: ignore[arg-type]  # one field, of its type or not
