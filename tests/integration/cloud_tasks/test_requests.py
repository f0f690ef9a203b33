"""What attempts ask of the target: method, address, headers and body, by the task's word and by the queue's."""

from typing import Any

import pytest

from tests.integration.cloud_tasks.conftest import QUEUE, Start, Sut, Target


async def test_an_http_task_is_sent_with_its_own_headers_but_those_that_are_reserved_or_computed(
    sut: Sut, target: Target
) -> None:
    target.script = [500]
    headers = {
        "X-Mine": "kept, with a comma",
        "User-Agent": "replaced",
        "Host": "replaced.example",
        "Content-Length": "99",
        "X-CloudTasks-TaskName": "forged",
        "X-AppEngine-QueueName": "forged",
        "X-Google-Anything": "forged",
    }
    name = f"{QUEUE}/tasks/the-task"
    await sut.create(target.url, name=name, schedule_time={"seconds": 1_800_000_000}, http={"headers": headers})
    await sut.step(1)
    first, second = (seen.headers for seen in target.seen)
    assert first["x-mine"] == "kept, with a comma"
    assert first["user-agent"] == "Google-Cloud-Tasks"
    assert first["host"] == target.url.removeprefix("http://")
    assert first["content-length"] == "0"
    assert first["x-cloudtasks-queuename"] == "q"
    assert first["x-cloudtasks-taskname"] == "the-task"
    assert first["x-cloudtasks-tasketa"] == "1800000000.000000"
    assert not any(name.startswith(("x-appengine-", "x-google-")) for name in first)
    assert "content-type" not in first
    assert "x-cloudtasks-taskpreviousresponse" not in first
    counts = [(h["x-cloudtasks-taskretrycount"], h["x-cloudtasks-taskexecutioncount"]) for h in (first, second)]
    assert counts == [("0", "0"), ("1", "1")]
    assert second["x-cloudtasks-taskpreviousresponse"] == "500"
    assert "500" in second["x-cloudtasks-taskretryreason"]
    assert second["x-cloudtasks-tasketa"] == "1800000000.100000"


async def test_an_app_engine_task_goes_to_its_service_and_version_with_app_engines_headers(
    start: Start, target: Target
) -> None:
    sut: Sut = await start(app_engine=target.url)
    target.script = [503]
    task = await sut.client.create_task(
        parent=QUEUE,
        task={
            "app_engine_http_request": {
                "relative_uri": "/handler?a=b",
                "body": b"x",
                "headers": {"User-Agent": "mine", "X-AppEngine-TaskName": "forged"},
                "app_engine_routing": {"service": "worker", "version": "v1"},
            }
        },
    )
    assert task.app_engine_http_request.app_engine_routing.host == "v1.worker.tally-local.appspot.com"
    await sut.step(5)
    first, second = target.seen
    assert (first.method, first.path, first.body) == ("POST", "/handler?a=b", b"x")
    assert first.headers["host"] == "v1.worker.tally-local.appspot.com"
    assert first.headers["user-agent"] == "mine AppEngine-Google; (+http://code.google.com/appengine)"
    assert first.headers["content-type"] == "application/octet-stream"
    assert first.headers["x-appengine-queuename"] == "q"
    assert first.headers["x-appengine-taskname"] == task.name.rsplit("/", 1)[1]
    assert first.headers["x-appengine-taskretrycount"] == "0"
    assert second.headers["x-appengine-taskpreviousresponse"] == "503"
    assert not any(name.startswith("x-cloudtasks-") for name in first.headers)


async def test_the_queues_routing_override_wins_wholly(start: Start, target: Target) -> None:
    sut: Sut = await start(app_engine=target.url)
    await sut.set_queue(app_engine_routing_override={"service": "other"})
    request = {"app_engine_routing": {"service": "worker", "version": "v1"}}
    await sut.client.create_task(parent=QUEUE, task={"app_engine_http_request": request})
    await sut.step()
    assert target.seen[0].headers["host"] == "other.tally-local.appspot.com"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_every_method_is_sent(sut: Sut, target: Target, method: str) -> None:
    await sut.create(target.url, http={"http_method": method})
    await sut.step()
    assert [seen.method for seen in target.seen] == [method]


FILL_IN = {"uri_override_enforce_mode": "IF_NOT_EXISTS"}
OVERRIDES: list[tuple[str, dict[str, Any], str, str]] = [
    ("path", {"path_override": {"path": "/other"}}, "/own?a=b", "/other?a=b"),
    ("cleared path", {"path_override": {"path": ""}}, "/own", "/"),
    ("query", {"query_override": {"query_params": "x=1&y=2"}}, "/own?a=b", "/own?x=1&y=2"),
    ("cleared query", {"query_override": {}}, "/own?a=b", "/own"),
    ("kept path", {"path_override": {"path": "/other"}, **FILL_IN}, "/own", "/own"),
    ("filled path", {"path_override": {"path": "/other"}, **FILL_IN}, "", "/other"),
    ("kept query", {"query_override": {"query_params": "x=1"}, **FILL_IN}, "/own?a=b", "/own?a=b"),
    ("filled query", {"query_override": {"query_params": "x=1"}, **FILL_IN}, "/own", "/own?x=1"),
]


@pytest.mark.parametrize(("override", "own", "sent"), [row[1:] for row in OVERRIDES], ids=[row[0] for row in OVERRIDES])
async def test_the_queues_uri_override_replaces_parts_of_the_tasks_or_fills_what_is_missing(
    sut: Sut, target: Target, override: dict[str, Any], own: str, sent: str
) -> None:
    await sut.set_queue(http_target={"uri_override": override})
    await sut.create(target.url + own)
    await sut.step()
    assert [seen.path for seen in target.seen] == [sent]


async def test_the_queues_host_port_method_and_headers_override_the_tasks(sut: Sut, target: Target) -> None:
    host, port = target.url.removeprefix("http://").split(":")
    await sut.set_queue(
        http_target={
            "uri_override": {"scheme": "HTTP", "host": host, "port": int(port)},
            "http_method": "GET",
            "header_overrides": [{"header": {"key": "x-a", "value": "queue"}}],
        },
    )
    await sut.create("https://nowhere.invalid/p", http={"body": b"ignored", "headers": {"X-A": "task", "X-B": "task"}})
    await sut.step()
    [seen] = target.seen
    assert (seen.method, seen.path, seen.body) == ("GET", "/p", b"")
    assert (seen.headers["x-a"], seen.headers["x-b"]) == ("queue", "task")


async def test_a_redirect_is_followed_within_the_attempt(sut: Sut, target: Target) -> None:
    target.script = [307]
    target.headers = {"Location": "/elsewhere"}
    task = await sut.create(f"{target.url}/first", http={"body": b"again"})
    await sut.step()
    assert [(seen.path, seen.body) for seen in target.seen] == [("/first", b"again"), ("/elsewhere", b"again")]
    assert await sut.gone(task.name)


async def test_endless_redirects_and_app_engine_redirects_fail_the_attempt(start: Start, target: Target) -> None:
    sut: Sut = await start(app_engine=target.url)
    target.headers = {"Location": "/round"}
    target.script = [302] * 50
    task = await sut.create(target.url, retry_config={"max_attempts": 1})
    await sut.step()
    assert 10 <= len(target.seen) <= 12
    assert await sut.gone(task.name)
    target.seen.clear()
    other = await sut.client.create_task(parent=QUEUE, task={"app_engine_http_request": {}})
    await sut.step()
    assert len(target.seen) == 1
    assert (await sut.client.get_task(name=other.name)).last_attempt.response_status.message.endswith("302")
