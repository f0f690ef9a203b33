"""Tasks through the official client: limits at their edges, names, views, pages."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, InvalidArgument, NotFound
from google.cloud import tasks_v2
from google.protobuf import timestamp_pb2

from emulator.cloud_tasks import limits
from tests.integration.cloud_tasks.conftest import LATER, PARENT, QUEUE, START, URL, Start, Sut, Target

FULL = tasks_v2.Task.View.FULL


async def app_engine(sut: Sut, **request: Any) -> Any:
    fields = {name: request.pop(name) for name in ("dispatch_deadline",) if name in request}
    return await sut.client.create_task(
        parent=QUEUE, task={"app_engine_http_request": request, "schedule_time": LATER, **fields}
    )


async def http(sut: Sut, **request: Any) -> Any:
    return await sut.create(URL, schedule_time=LATER, http=request)


async def test_a_body_is_in_the_full_view_alone(sut: Sut) -> None:
    task = await http(sut, body=b"secret")
    assert (task.view, task.http_request.body) == (tasks_v2.Task.View.BASIC, b"")
    assert (await sut.client.get_task(name=task.name)).http_request.body == b""
    full = await sut.client.get_task(request={"name": task.name, "response_view": FULL})
    assert (full.view, full.http_request.body) == (FULL, b"secret")
    [listed] = [each async for each in await sut.client.list_tasks(request={"parent": QUEUE, "response_view": FULL})]
    assert listed == full


async def test_what_a_new_task_shows(sut: Sut) -> None:
    await sut.step(0.5)
    task = await sut.create(URL, schedule_time=LATER)
    assert task.name.startswith(f"{QUEUE}/tasks/")
    assert task.name.rsplit("/", 1)[1].isdigit()
    assert task.create_time.timestamp() == START / 1_000_000  # cut to the second
    assert task.schedule_time.timestamp() == LATER["seconds"]
    assert task.dispatch_deadline.total_seconds() == 600
    assert (task.dispatch_count, task.response_count, "first_attempt" in task) == (0, 0, False)
    past = await sut.create(URL, schedule_time={"seconds": 1})
    assert past.schedule_time.timestamp() == START / 1_000_000 + 0.5


@pytest.mark.parametrize(
    "when",
    [
        timestamp_pb2.Timestamp(seconds=LATER["seconds"]),
        datetime.fromtimestamp(LATER["seconds"], UTC),
        {"seconds": LATER["seconds"]},
    ],
)
async def test_a_schedule_time_comes_in_any_form_of_the_client(sut: Sut, when: Any) -> None:
    task = await sut.create(URL, schedule_time=when)
    assert task.schedule_time.timestamp() == LATER["seconds"]


async def test_a_schedule_time_up_to_thirty_days_ahead(sut: Sut) -> None:
    now = datetime.fromtimestamp(START / 1_000_000, UTC)
    for hours in (719, 720):
        await sut.create(URL, schedule_time=now + timedelta(hours=hours))
    for ahead in (timedelta(hours=720, microseconds=1), timedelta(hours=721), timedelta(days=400)):
        with pytest.raises(InvalidArgument, match="no more than 720h in the future"):
            await sut.create(URL, schedule_time=now + ahead)
    with pytest.raises(InvalidArgument, match="scheduleTime"):
        await sut.create(URL, schedule_time=timestamp_pb2.Timestamp(seconds=2**60))


async def test_a_task_up_to_its_size_limit(sut: Sut) -> None:
    small = await sut.client.create_task(
        parent=QUEUE, task={"http_request": {"url": URL, "body": b"x" * 101_000}, "schedule_time": LATER}
    )
    assert small.name
    at_most = tasks_v2.Task(http_request={"url": URL, "body": b""}, schedule_time=LATER)
    room = limits.TASK_BYTES - tasks_v2.Task.pb(at_most).ByteSize()
    at_most.http_request.body = b"x" * (room - 12)
    while tasks_v2.Task.pb(at_most).ByteSize() < limits.TASK_BYTES:
        at_most.http_request.body += b"x"
    await sut.client.create_task(parent=QUEUE, task=at_most)
    at_most.http_request.body += b"x"
    with pytest.raises(
        InvalidArgument, match=f"Task size too large: {limits.TASK_BYTES + 1} bytes.*{limits.TASK_BYTES}"
    ):
        await sut.client.create_task(parent=QUEUE, task=at_most)


async def test_a_task_must_be_of_one_kind(sut: Sut) -> None:
    with pytest.raises(InvalidArgument, match="httpRequest and appEngineHttpRequest"):
        await sut.client.create_task(parent=QUEUE, task={})


@pytest.mark.parametrize(("seconds", "good"), [(14.999, False), (15, True), (1_800, True), (1_800.001, False)])
async def test_the_dispatch_deadline_of_an_http_task(sut: Sut, seconds: float, good: bool) -> None:
    deadline = timedelta(seconds=seconds)
    if good:
        assert (await sut.create(URL, schedule_time=LATER, dispatch_deadline=deadline)).dispatch_deadline == deadline
    else:
        with pytest.raises(InvalidArgument, match="between 15s and 1800s"):
            await sut.create(URL, dispatch_deadline=deadline)


@pytest.mark.parametrize(("seconds", "good"), [(0, True), (14, False), (15, True), (86_415, True), (86_416, False)])
async def test_the_dispatch_deadline_of_an_app_engine_task(sut: Sut, seconds: int, good: bool) -> None:
    if good:
        task = await app_engine(sut, dispatch_deadline={"seconds": seconds})
        assert task.dispatch_deadline.total_seconds() == (seconds or 600)
    else:
        with pytest.raises(InvalidArgument, match="between 15s and 86415s"):
            await app_engine(sut, dispatch_deadline={"seconds": seconds})


async def test_a_url_is_one_of_http_with_a_host_and_within_its_limit(sut: Sut) -> None:
    stem = "https://example.com/"
    longest = stem + "x" * (limits.URL_CHARACTERS - len(stem))
    await sut.create(longest, schedule_time=LATER)
    for bad, message in (
        (longest + "x", "2084 characters, the limit is 2083"),
        ("ftp://example.com", "must begin with http"),
        ("", "must begin with http"),
        ("http://", "no host"),
        ("http://[::1", "is no URL"),
        ("http://host:99999/", "is no URL"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            await sut.create(bad)


async def test_a_relative_uri_begins_with_a_slash_and_is_within_its_limit(sut: Sut) -> None:
    await app_engine(sut, relative_uri="/" + "x" * (limits.URL_CHARACTERS - 1))
    for bad, message in (("/" + "x" * limits.URL_CHARACTERS, "2083"), ("x", "begin with /"), ("/a b", "spaces")):
        with pytest.raises(InvalidArgument, match=message):
            await app_engine(sut, relative_uri=bad)


async def test_bodies_go_with_some_methods_only(sut: Sut) -> None:
    for method in ("POST", "PUT", "PATCH"):
        await http(sut, http_method=method, body=b"x")
    for method in ("GET", "HEAD", "DELETE", "OPTIONS"):
        with pytest.raises(InvalidArgument, match=f"not allowed with the method {method}"):
            await http(sut, http_method=method, body=b"x")
    with pytest.raises(InvalidArgument, match="not allowed with the method PATCH"):
        await app_engine(sut, http_method="PATCH", body=b"x")


async def test_headers_are_named_as_http_names_them_and_within_their_limit(sut: Sut) -> None:
    room = limits.HEADERS_BYTES - 1 - len("k")
    await http(sut, headers={"k": "v" * room})
    for headers, message in (
        ({"k": "v" * (room + 1)}, "81920 bytes, must be less than 81920"),
        ({"bad name": "v"}, "no HTTP header name"),
        ({"k": "a\r\nX-Injected: b"}, "line break"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            await http(sut, headers=headers)


async def test_a_token_needs_an_account(sut: Sut) -> None:
    for kind in ("oidc_token", "oauth_token"):
        with pytest.raises(InvalidArgument, match="serviceAccountEmail"):
            await http(sut, **{kind: {}})


@pytest.mark.parametrize("task_id", ["a" * 500, "A_b-9"])
async def test_a_task_name_at_the_limit_is_taken(sut: Sut, task_id: str) -> None:
    task = await sut.create(URL, name=f"{QUEUE}/tasks/{task_id}", schedule_time=LATER)
    assert (await sut.client.get_task(name=task.name)).name == task.name


@pytest.mark.parametrize("task_id", ["a" * 501, "do.t", "", "ü", "a/b", "a b"])
async def test_a_task_name_past_the_limit_is_refused(sut: Sut, task_id: str) -> None:
    with pytest.raises(InvalidArgument, match="at most 500 characters"):
        await sut.create(URL, name=f"{QUEUE}/tasks/{task_id}")


async def test_a_task_must_be_below_its_parent_which_exists(sut: Sut) -> None:
    with pytest.raises(InvalidArgument, match="must begin with the parent"):
        await sut.create(URL, name=f"{PARENT}/queues/other/tasks/t")
    with pytest.raises(NotFound, match=r"Queue .* does not exist"):
        await sut.create(URL, queue=f"{PARENT}/queues/other")


async def test_a_name_stays_taken_for_a_day_after_the_task_is_gone(sut: Sut, target: Target) -> None:
    name = f"{QUEUE}/tasks/once"
    await sut.create(target.url, name=name, schedule_time=LATER)
    with pytest.raises(AlreadyExists, match="already exists"):
        await sut.create(target.url, name=name)
    await sut.step(3_600)
    assert len(target.seen) == 1
    for passed in (limits.NAME_TAKEN / 1_000_000 - 0.001, 0):
        with pytest.raises(AlreadyExists, match="existed too recently"):
            await sut.create(target.url, name=name)
        await sut.step(passed)
    await sut.step(0.001)
    await sut.create(target.url, name=name)
    await sut.step()
    assert len(target.seen) == 2


async def test_a_refused_create_does_not_take_the_name(sut: Sut) -> None:
    name = f"{QUEUE}/tasks/retried"
    with pytest.raises(InvalidArgument):
        await sut.create("no url", name=name)
    await sut.create(URL, name=name, schedule_time=LATER)


async def test_tasks_are_listed_in_pages(sut: Sut) -> None:
    names = [(await sut.create(URL, schedule_time=LATER)).name for _ in range(7)]
    pages = (await sut.client.list_tasks(request={"parent": QUEUE, "page_size": 3})).pages
    assert [[task.name for task in page.tasks] async for page in pages] == [names[:3], names[3:6], names[6:]]


async def test_a_page_has_a_thousand_tasks_at_most(sut: Sut) -> None:
    for _ in range(11):
        requests = [{"parent": QUEUE, "task": {"http_request": {"url": URL}, "schedule_time": LATER}}] * 100
        await sut.client.batch_create_tasks(request={"parent": QUEUE, "requests": requests})
    pages = (await sut.client.list_tasks(request={"parent": QUEUE, "page_size": 5_000})).pages
    assert [len(page.tasks) async for page in pages] == [1_000, 100]


async def test_a_page_token_belongs_to_its_list_and_lives_for_two_hours(sut: Sut) -> None:
    for _ in range(2):
        await sut.create(URL, schedule_time={"seconds": LATER["seconds"] + 86_400})
    first = await anext((await sut.client.list_tasks(request={"parent": QUEUE, "page_size": 1})).pages)
    token = first.next_page_token
    for request, message in (
        ({"page_token": "garbage"}, "not valid"),
        ({"page_size": -1}, "negative"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            await sut.client.list_tasks(request={"parent": QUEUE, **request})
    with pytest.raises(InvalidArgument, match="another list"):
        await sut.client.list_queues(request={"parent": PARENT, "page_token": token})
    await sut.step(7_201)
    with pytest.raises(InvalidArgument, match="2 hours"):
        await sut.client.list_tasks(request={"parent": QUEUE, "page_token": token})


async def test_a_task_that_is_not_there_is_not_found(sut: Sut) -> None:
    for method in (sut.client.get_task, sut.client.delete_task, sut.client.run_task):
        with pytest.raises(NotFound, match="Task does not exist"):
            await method(name=f"{QUEUE}/tasks/missing")


async def test_many_clients_racing_for_one_name_make_one_task(sut: Sut, target: Target) -> None:
    creates = [sut.create(target.url, name=f"{QUEUE}/tasks/race") for _ in range(50)]
    answers = await asyncio.gather(*creates, return_exceptions=True)
    assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 49
    await sut.step(60)
    assert len(target.seen) == 1


async def test_deadlines_are_cut_to_the_millisecond(start: Start) -> None:
    sut: Sut = await start()
    task = await sut.create(URL, schedule_time=LATER, dispatch_deadline=timedelta(seconds=20, microseconds=1_999))
    assert task.dispatch_deadline == timedelta(seconds=20, milliseconds=1)
