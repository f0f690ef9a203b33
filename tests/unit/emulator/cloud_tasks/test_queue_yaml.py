import pytest

from emulator.cloud_tasks.errors import ApiError
from emulator.cloud_tasks.queue_yaml import read

PARENT = "projects/p/locations/l"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queue: 5", "want a mapping"),
        ("queues: []", "unknown key queues"),
        ("queue:\n- rate: 5/s", "needs a name"),
        ("queue:\n- name: a\n- name: a", "twice"),
        ("queue:\n- {name: a, rate: fast}", "rate 'fast'"),
        ("queue:\n- {name: a, mode: sideways}", "must be push or pull"),
        ("queue:\n- {name: a, colour: red}", "unknown key colour"),
        ("queue:\n- {name: a, retry_parameters: {tries: 1}}", "unknown retry parameter tries"),
        ("queue:\n- {name: a, retry_parameters: {task_age_limit: long}}", "task_age_limit 'long'"),
        ("queue:\n- {name: under_score}", "at most 100 characters"),
    ],
)
def test_a_queue_yaml_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        read(text, PARENT)


@pytest.mark.parametrize(
    ("rate", "per_second"), [("5/s", 5.0), ("30/m", 0.5), ("36/h", 0.01), ("864/d", 0.01), ("1.5 / s", 1.5)]
)
def test_a_rate_is_read_in_any_unit(rate: str, per_second: float) -> None:
    [queue] = read(f"queue:\n- {{name: a, rate: {rate}}}", PARENT)
    assert queue.rate_limits.max_dispatches_per_second == pytest.approx(per_second)


@pytest.mark.parametrize(("age", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5_400), ("2d", 172_800)])
def test_an_age_is_read_in_any_unit(age: str, seconds: int) -> None:
    [queue] = read(f"queue:\n- {{name: a, retry_parameters: {{task_age_limit: {age}}}}}", PARENT)
    assert queue.retry_config.max_retry_duration.seconds == seconds


@pytest.mark.parametrize("text", ["", "queue:", "queue: []", "total_storage_limit: 120M"])
def test_a_file_without_queues_makes_none(text: str) -> None:
    assert read(text, PARENT) == []
