from typing import Any

import pytest
from google.cloud.tasks_v2.types import target

from emulator.cloud_tasks import messages as m
from emulator.cloud_tasks.messages import plain
from emulator.cloud_tasks.request import History, HttpCall, build, overridden_url
from tally.tasks.entry import Dispatch, Entry

UriOverride = plain(target.UriOverride)
ENTRY = Entry(id="t", sequence=1, created=0, eta=1_800_000_000_000_001, payload=b"")
FIRST = History(retries=0, responses=0, previous_code=0, previous_reason="")
QUEUE = "projects/p/locations/l/queues/q"


def call(task: Any, queue: Any = None, history: History = FIRST) -> HttpCall:
    dispatch = Dispatch(entry=ENTRY, attempt=1, expires=0)
    return build(queue or m.Queue(name=QUEUE), task, dispatch, history, lambda source, url: None, "http://app:80/")


@pytest.mark.parametrize(
    ("url", "fields", "wanted"),
    [
        ("https://a/x?y=1", {}, "https://a/x?y=1"),
        ("https://a/x", {"scheme": 1}, "http://a/x"),
        ("http://a/x", {"scheme": 2}, "https://a/x"),
        ("http://a/x", {"scheme": 0}, "https://a/x"),
        ("http://a:1/x", {"host": "b"}, "http://b:1/x"),
        ("http://a/x", {"port": 123}, "http://a:123/x"),
        ("http://a:1/x", {"port": 0}, "http://a/x"),
        ("http://a/x", {"path_override": {"path": "y"}}, "http://a/y"),
        ("http://a/x", {"path_override": {}}, "http://a"),
        ("http://a/x?y", {"query_override": {"query_params": "z=1"}}, "http://a/x?z=1"),
        ("http://[::1]:5/x", {"port": 6}, "http://[::1]:6/x"),
        ("http://a/x#part", {"port": 1}, "http://a:1/x"),
    ],
)
def test_an_override_that_always_applies(url: str, fields: dict[str, Any], wanted: str) -> None:
    assert overridden_url(url, UriOverride(**fields)) == wanted


@pytest.mark.parametrize(
    ("url", "wanted"),
    [("http://a", "http://a:7/p?q=1"), ("http://a:1/x?y=2", "http://a:1/x?y=2"), ("http://a/x", "http://a:7/x?q=1")],
)
def test_an_override_that_fills_in_what_is_missing(url: str, wanted: str) -> None:
    override = UriOverride(
        host="b",
        port=7,
        path_override={"path": "/p"},
        query_override={"query_params": "q=1"},
        uri_override_enforce_mode=1,
    )
    assert overridden_url(url, override) == wanted


def test_an_http_call_has_the_tasks_headers_and_the_services_own() -> None:
    task = m.Task(
        http_request={"url": "http://a/x", "headers": {"A": "1", "X-CloudTasks-QueueName": "forged"}, "body": b"b"}
    )
    made = call(task)
    assert (made.method, made.url, made.body, made.app_engine) == ("POST", "http://a/x", b"b", False)
    assert made.headers == {
        "a": "1",
        "user-agent": "Google-Cloud-Tasks",
        "X-CloudTasks-QueueName": "q",
        "X-CloudTasks-TaskName": "t",
        "X-CloudTasks-TaskRetryCount": "0",
        "X-CloudTasks-TaskExecutionCount": "0",
        "X-CloudTasks-TaskETA": "1800000000.000001",
    }


def test_an_app_engine_call_of_a_later_attempt() -> None:
    history = History(retries=3, responses=2, previous_code=404, previous_reason="NOT_FOUND(5): HTTP status code 404")
    made = call(m.Task(app_engine_http_request={"http_method": 2}), history=history)
    assert (made.method, made.url, made.app_engine) == ("GET", "http://app:80/", True)
    assert made.headers["host"] == "p.appspot.com"
    assert made.headers["X-AppEngine-TaskRetryCount"] == "3"
    assert made.headers["X-AppEngine-TaskExecutionCount"] == "2"
    assert made.headers["X-AppEngine-TaskPreviousResponse"] == "404"
    assert made.headers["X-AppEngine-TaskRetryReason"] == "NOT_FOUND(5): HTTP status code 404"


def test_the_queues_method_drops_the_body_where_it_has_none() -> None:
    queue = m.Queue(name=QUEUE, http_target={"http_method": 2})
    made = call(m.Task(http_request={"url": "http://a", "body": b"b"}), queue)
    assert (made.method, made.body) == ("GET", b"")
