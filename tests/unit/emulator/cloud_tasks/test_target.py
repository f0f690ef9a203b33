import time
from email.utils import formatdate

import pytest

from emulator.cloud_tasks.target import http_code, judge, parse_retry_after
from tally.tasks.entry import DAY

SECOND = 1_000_000


@pytest.mark.parametrize("code", range(100, 600))
def test_only_2xx_is_success(code: int) -> None:
    assert judge(code, None, app_engine=False).success is (200 <= code < 300)


@pytest.mark.parametrize(
    ("code", "app_engine", "overload", "wait"),
    [(429, False, True, 5), (503, False, True, 5), (500, False, False, 0), (429, True, False, 0), (503, True, True, 0)],
)
def test_what_slows_the_queue(code: int, app_engine: bool, overload: bool, wait: int) -> None:
    outcome = judge(code, "5", app_engine=app_engine)
    assert (outcome.overload, outcome.retry_after) == (overload, wait * SECOND)


@pytest.mark.parametrize(
    ("value", "wait"),
    [(None, 0), ("", 0), ("0", 0), (" 7 ", 7 * SECOND), ("-7", 0), ("soon", 0), ("1e3", 0), ("9" * 30, DAY)],
)
def test_retry_after_is_read_in_seconds(value: str | None, wait: int) -> None:
    assert parse_retry_after(value) == wait


def test_retry_after_is_read_as_a_date() -> None:
    assert 28 * SECOND < parse_retry_after(formatdate(time.time() + 30, usegmt=True)) <= 30 * SECOND
    assert parse_retry_after(formatdate(time.time() - 30, usegmt=True)) == 0


def test_the_code_is_read_back_from_a_status() -> None:
    assert http_code(judge(404, None, app_engine=False).status) == 404
    assert http_code("UNAVAILABLE(14): no HTTP response") == 0
