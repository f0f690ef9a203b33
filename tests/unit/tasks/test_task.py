from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput, TooLarge
from tally.tasks.task import FORM, JSON, TEXT, Task, Unique, check_name, check_queue

NOW = 1_900_000_000 * SECOND


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, NOW),
        ({"delay": 0}, NOW),
        ({"delay": 1.5}, NOW + 1_500_000),
        ({"delay": timedelta(microseconds=1)}, NOW + 1),
        ({"eta": datetime(2030, 1, 1, tzinfo=UTC)}, 1_893_456_000 * SECOND),
        ({"eta": datetime(2030, 1, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo"))}, 1_893_456_000 * SECOND),
        ({"eta": datetime(1960, 1, 1, tzinfo=UTC)}, 0),
    ],
)
def test_delay_or_eta_says_when_a_task_is_due(options: dict[str, Any], due: int) -> None:
    task = Task(**options)
    assert task.due(NOW) == due
    assert task.at(NOW).due(NOW + SECOND) == due


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eta": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001  # the naive datetime is what is refused
        ({"eta": date(2030, 1, 1)}, "time zone"),
        ({"eta": "2030-01-01T00:00:00Z"}, "time zone"),
        ({"eta": 1_893_456_000}, "time zone"),
        ({"expires": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001  # as above
        ({"delay": 1, "eta": datetime(2030, 1, 1, tzinfo=UTC)}, "one or the other"),
        ({"delay": 0, "eta": datetime(2030, 1, 1, tzinfo=UTC)}, "one or the other"),
        ({"delay": -1}, "delay is -1 s"),
        ({"delay": float("nan")}, "delay is nan"),
        ({"delay": True}, "delay is True"),
        ({"delay": "5"}, "delay is '5'"),
        ({"delay": limits.DELAY_SECONDS + 1}, f"want 0 to {limits.DELAY_SECONDS}"),
        ({"expires": -1}, "expires is -1 s"),
        ({"name": ""}, "task name ''"),
        ({"name": "a/b"}, "'a/b'"),
        ({"name": "a\n"}, "task name"),
        ({"name": "é"}, "task name"),
        ({"name": "a" * (limits.TASK_NAME + 1)}, "1 to 500"),
        ({"tag": ""}, "tag of 0 bytes"),
        ({"tag": "é" * 251}, "tag of 502 bytes"),
        ({"tag": "a\x00"}, "control character"),
        ({"tag": "\ud800"}, "not valid text"),
        ({"dispatch_deadline": 14.9}, "want 15 to 1800"),
        ({"dispatch_deadline": 1_801}, "want 15 to 1800"),
        ({"name": "a", "unique": Unique(period=60)}, "unique makes the name"),
        ({"headers": {"": "x"}}, "header name"),
        ({"headers": {"x": "é"}}, "printable ASCII"),
        ({"content_type": "a\r\nb"}, "printable ASCII"),
        ({"payload": "text"}, "Task.text"),
    ],
    ids=repr,
)
def test_a_wrong_value_is_refused_naming_it(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match="^(.|\n)*" + says.replace("(", r"\(")):
        Task(**options)


def test_values_at_their_limits_are_taken() -> None:
    Task(name="a" * limits.TASK_NAME, tag="é" * 250, delay=limits.DELAY_SECONDS, dispatch_deadline=15)
    Task(payload=bytes(limits.TASK_BYTES), headers={"x": "a" * (limits.HEADER_BYTES - 100)})
    assert check_name("0_-Z") == "0_-Z"
    assert check_queue("a" * limits.QUEUE_NAME)


def test_what_is_past_a_size_limit_is_too_large() -> None:
    with pytest.raises(TooLarge, match="8000001 bytes"):
        Task(payload=bytes(limits.TASK_BYTES + 1))
    with pytest.raises(TooLarge, match="headers"):
        Task(headers={"x": "a" * limits.HEADER_BYTES})


@pytest.mark.parametrize("name", ["", "a_b", "a/b", "é", "a" * (limits.QUEUE_NAME + 1), "a\n"])
def test_a_wrong_queue_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="queue name"):
        check_queue(name)


def test_a_payload_comes_back_as_it_was_given() -> None:
    assert Task.json({"a": [1, None]}).value() == {"a": [1, None]}
    assert Task.text("hé").value() == "hé"
    assert Task(payload=b"\0").value() == b"\0"
    form = Task.form({"to": "é&=", "line": ["1", "2"], "empty": ""})
    assert (form.payload, form.content_type) == (b"to=%C3%A9%26%3D&line=1&line=2&empty=", FORM)
    assert form.value() == {"to": "é&=", "line": ["1", "2"], "empty": ""}
    assert Task.form({}).value() == {}


@pytest.mark.parametrize("content_type", [JSON, TEXT, FORM])
def test_a_payload_that_its_content_type_belies_is_refused_when_read(content_type: str) -> None:
    with pytest.raises(InvalidInput, match="payload is not"):
        Task(payload=b"\xff", content_type=content_type).value()


@pytest.mark.parametrize("value", [object(), {"a": open}, "\ud800"])
def test_what_is_not_json_is_refused_when_the_task_is_made(value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be written as JSON"):
        Task.json(value)


def test_what_is_no_form_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be written as a form"):
        Task.form({"a": "\ud800"})
    for payload in (b"a", b"a=%ff"):
        with pytest.raises(InvalidInput, match="payload is not"):
            Task(payload=payload, content_type=FORM).value()


def test_unique_makes_a_name_from_the_key_or_the_payload_and_the_queue() -> None:
    keyed = [Task.json(n, unique=Unique(period=60, key="k")).identity("q") for n in (1, 2)]
    by_payload = [Task.json(n, unique=Unique(period=60)).identity("q") for n in (1, 2, 1)]
    assert keyed[0] == keyed[1]
    assert by_payload[0] == by_payload[2] != by_payload[1]
    assert Task.text("k", unique=Unique(period=60)).identity("q") != keyed[0]
    assert Task.json(1, unique=Unique(period=60, key="k")).identity("other") != keyed[0]
    assert Task(name="n").identity("q") == "n"
    assert Task().identity("q") is None
