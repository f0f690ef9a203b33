"""Many tasks in one call: each made or deleted by itself, told in an operation, once for each request id."""

import pytest
from google.api_core.exceptions import GoogleAPICallError, InvalidArgument, NotFound
from google.cloud import tasks_v2

from emulator.cloud_tasks import limits
from tests.integration.cloud_tasks.conftest import LATER, PARENT, QUEUE, URL, Sut


async def test_a_batch_creates_what_it_can_and_tells_the_rest(sut: Sut) -> None:
    good = {"task": {"name": f"{QUEUE}/tasks/a", "http_request": {"url": URL}, "schedule_time": LATER}}
    bad = {"task": {"http_request": {"url": "no url"}}}
    operation = await sut.client.batch_create_tasks(request={"parent": QUEUE, "requests": [good, bad, good]})
    assert not operation.operation.done
    created = await operation.result(timeout=10)
    assert [task.name for task in created.tasks] == [f"{QUEUE}/tasks/a"]
    failed = operation.metadata.failed_requests
    assert {index: status.code for index, status in failed.items()} == {1: 3, 2: 6}
    assert operation.metadata.state == tasks_v2.BatchCreateTasksMetadata.State.PARTIALLY_SUCCEEDED


async def test_a_batch_in_which_all_fail_is_aborted(sut: Sut) -> None:
    bad = {"task": {"http_request": {"url": "no url"}}}
    operation = await sut.client.batch_create_tasks(request={"parent": QUEUE, "requests": [bad]})
    with pytest.raises(GoogleAPICallError, match="None of the requests succeeded"):
        await operation.result(timeout=10)


async def test_a_batch_with_the_same_request_id_is_done_once(sut: Sut) -> None:
    request = {"parent": QUEUE, "requests": [{"task": {"http_request": {"url": URL}, "schedule_time": LATER}}]}
    for _ in range(2):
        operation = await sut.client.batch_create_tasks(request={**request, "request_id": "r1"})
        await operation.result(timeout=10)
    assert len([task async for task in await sut.client.list_tasks(parent=QUEUE)]) == 1


async def test_a_batch_has_tasks_up_to_its_limit_and_at_least_one(sut: Sut) -> None:
    one = {"task": {"http_request": {"url": URL}, "schedule_time": LATER}}
    for count in (0, limits.BATCH_CREATE + 1):
        with pytest.raises(InvalidArgument, match="1 to 100"):
            await sut.client.batch_create_tasks(request={"parent": QUEUE, "requests": [one] * count})
    names = [f"{QUEUE}/tasks/t{n}" for n in range(limits.BATCH_DELETE + 1)]
    with pytest.raises(InvalidArgument, match="1 to 1000"):
        await sut.client.batch_delete_tasks(request={"parent": QUEUE, "names": names})
    operation = await sut.client.batch_delete_tasks(request={"parent": QUEUE, "names": names[:-1]})
    with pytest.raises(GoogleAPICallError, match="None of the requests succeeded"):
        await operation.result(timeout=10)


async def test_a_batch_deletes_what_is_there(sut: Sut) -> None:
    names = [(await sut.create(URL, schedule_time=LATER)).name for _ in range(2)]
    operation = await sut.client.batch_delete_tasks(
        request={"parent": QUEUE, "names": [*names, f"{QUEUE}/tasks/missing"]}
    )
    await operation.result(timeout=10)
    assert {index: status.code for index, status in operation.metadata.failed_requests.items()} == {2: 5}
    assert [task async for task in await sut.client.list_tasks(parent=QUEUE)] == []


async def test_an_operation_that_is_not_there_is_not_found(sut: Sut) -> None:
    with pytest.raises(NotFound, match="Operation"):
        await sut.client.get_operation(request={"name": f"{PARENT}/operations/none"})
