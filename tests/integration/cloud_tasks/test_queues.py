"""Queues through the official client: made, changed, listed, paused, deleted, and every limit at its edge."""

from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from google.cloud import tasks_v2
from google.protobuf import duration_pb2, field_mask_pb2

from emulator.cloud_tasks import limits
from tests.integration.cloud_tasks.conftest import PARENT, QUEUE, Sut

State = tasks_v2.Queue.State


async def make(sut: Sut, name: str, **fields: Any) -> tasks_v2.Queue:
    queue: tasks_v2.Queue = await sut.client.create_queue(
        parent=PARENT, queue={"name": f"{PARENT}/queues/{name}", **fields}
    )
    return queue


async def test_a_new_queue_has_the_services_defaults(sut: Sut) -> None:
    queue = await make(sut, "new")
    assert queue.state == State.RUNNING
    assert queue.rate_limits.max_dispatches_per_second == 500
    assert queue.rate_limits.max_burst_size == 500
    assert queue.rate_limits.max_concurrent_dispatches == 1_000
    assert queue.retry_config.max_attempts == 100
    assert queue.retry_config.min_backoff.total_seconds() == 0.1
    assert queue.retry_config.max_backoff.total_seconds() == 3_600
    assert queue.retry_config.max_doublings == 16
    assert "purge_time" not in queue
    assert await sut.client.get_queue(name=queue.name) == queue


async def test_output_only_fields_are_ignored(sut: Sut) -> None:
    queue = await make(sut, "new", state=State.PAUSED, purge_time={"seconds": 1}, rate_limits={"max_burst_size": 9})
    assert (queue.state, queue.rate_limits.max_burst_size, "purge_time" in queue) == (State.RUNNING, 500, False)


async def test_a_name_exists_once(sut: Sut) -> None:
    with pytest.raises(AlreadyExists, match="queues/q"):
        await make(sut, "q")


@pytest.mark.parametrize("name", ["a" * 100, "A-9"])
async def test_a_name_at_the_limit_is_taken(sut: Sut, name: str) -> None:
    assert (await make(sut, name)).name.endswith(name)


@pytest.mark.parametrize("name", ["a" * 101, "under_score", "dot.ted", "", "sla/sh", "ü"])
async def test_a_name_past_the_limit_is_refused(sut: Sut, name: str) -> None:
    with pytest.raises(InvalidArgument, match="at most 100 characters"):
        await make(sut, name)


async def test_a_queue_must_be_below_its_parent(sut: Sut) -> None:
    with pytest.raises(InvalidArgument, match="must begin with the parent"):
        await sut.client.create_queue(parent="projects/other/locations/x", queue={"name": f"{PARENT}/queues/z"})
    with pytest.raises(InvalidArgument, match="LOCATION_ID"):
        await sut.client.create_queue(parent="projects/other", queue={"name": f"{PARENT}/queues/z"})


SETTINGS: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    ({"rate_limits": {"max_dispatches_per_second": 500}}, {"rate_limits": {"max_dispatches_per_second": 500.1}}, "500"),
    ({"rate_limits": {"max_dispatches_per_second": 0.1}}, {"rate_limits": {"max_dispatches_per_second": -1}}, "-1"),
    (
        {"rate_limits": {"max_concurrent_dispatches": 5_000}},
        {"rate_limits": {"max_concurrent_dispatches": 5_001}},
        "5000",
    ),
    ({"rate_limits": {"max_concurrent_dispatches": 1}}, {"rate_limits": {"max_concurrent_dispatches": -1}}, "-1"),
    ({"retry_config": {"max_attempts": -1}}, {"retry_config": {"max_attempts": -2}}, "at least -1"),
    ({"retry_config": {"max_doublings": 1}}, {"retry_config": {"max_doublings": -1}}, "at least 0"),
    (
        {"retry_config": {"min_backoff": {"seconds": 5}, "max_backoff": {"seconds": 5}}},
        {"retry_config": {"min_backoff": {"seconds": 6}, "max_backoff": {"seconds": 5}}},
        "at most maxBackoff",
    ),
    ({"retry_config": {"min_backoff": {}}}, {"retry_config": {"min_backoff": {"seconds": -1}}}, "negative"),
    (
        {"stackdriver_logging_config": {"sampling_ratio": 1}},
        {"stackdriver_logging_config": {"sampling_ratio": 1.01}},
        "between 0.0 and 1.0",
    ),
    (
        {"http_target": {"uri_override": {"port": 65_535}}},
        {"http_target": {"uri_override": {"port": 65_536}}},
        "65535",
    ),
    ({"http_target": {"uri_override": {"host": "h"}}}, {"http_target": {"uri_override": {"host": ""}}}, "empty"),
    (
        {"http_target": {"header_overrides": [{"header": {"key": "k", "value": "v" * (80 * 1024 - 2)}}]}},
        {"http_target": {"header_overrides": [{"header": {"key": "k", "value": "v" * (80 * 1024 - 1)}}]}},
        "81920",
    ),
]


@pytest.mark.parametrize(("good", "bad", "message"), SETTINGS, ids=[row[2] for row in SETTINGS])
async def test_settings_at_and_past_their_limits(
    sut: Sut, good: dict[str, Any], bad: dict[str, Any], message: str
) -> None:
    await make(sut, "good", **good)
    with pytest.raises(InvalidArgument, match=message):
        await make(sut, "bad", **bad)
    with pytest.raises(NotFound):
        await sut.client.get_queue(name=f"{PARENT}/queues/bad")


async def test_retry_duration_is_cut_to_the_second(sut: Sut) -> None:
    duration = duration_pb2.Duration(seconds=9, nanos=900_000_000)
    queue = await make(sut, "new", retry_config={"max_retry_duration": duration})
    assert queue.retry_config.max_retry_duration.total_seconds() == 9


async def test_update_changes_what_the_mask_names(sut: Sut) -> None:
    await make(
        sut, "new", rate_limits={"max_dispatches_per_second": 7}, retry_config={"max_attempts": 5, "max_doublings": 2}
    )
    changes = {"name": f"{PARENT}/queues/new", "rate_limits": {"max_dispatches_per_second": 9}}
    mask = field_mask_pb2.FieldMask(paths=["rate_limits.max_dispatches_per_second", "retry_config.max_doublings"])
    queue = await sut.client.update_queue(queue=changes, update_mask=mask)
    assert queue.rate_limits.max_dispatches_per_second == 9
    assert (queue.retry_config.max_attempts, queue.retry_config.max_doublings) == (5, 0)
    assert queue.rate_limits.max_burst_size == 9


async def test_update_without_a_mask_sets_everything(sut: Sut) -> None:
    await make(sut, "new", rate_limits={"max_dispatches_per_second": 7}, retry_config={"max_attempts": 5})
    queue = await sut.client.update_queue(queue={"name": f"{PARENT}/queues/new", "retry_config": {"max_attempts": 3}})
    assert (queue.rate_limits.max_dispatches_per_second, queue.retry_config.max_attempts) == (500, 3)


async def test_update_makes_a_missing_queue_and_keeps_the_state(sut: Sut) -> None:
    queue = await sut.client.update_queue(queue={"name": f"{PARENT}/queues/made"})
    assert queue.state == State.RUNNING
    await sut.client.pause_queue(name=queue.name)
    await sut.client.purge_queue(name=queue.name)
    updated = await sut.client.update_queue(queue={"name": queue.name, "state": State.RUNNING})
    assert updated.state == State.PAUSED
    assert updated.purge_time.timestamp() == 1_800_000_000


async def test_a_mask_with_an_unknown_path_is_refused(sut: Sut) -> None:
    with pytest.raises(InvalidArgument, match="colour"):
        await sut.client.update_queue(queue={"name": QUEUE}, update_mask=field_mask_pb2.FieldMask(paths=["colour"]))


async def test_a_queue_shows_whether_it_is_paused(sut: Sut) -> None:
    assert (await sut.client.pause_queue(name=QUEUE)).state == State.PAUSED
    assert (await sut.client.get_queue(name=QUEUE)).state == State.PAUSED
    assert (await sut.client.resume_queue(name=QUEUE)).state == State.RUNNING


@pytest.mark.parametrize("method", ["get_queue", "delete_queue", "purge_queue", "pause_queue", "resume_queue"])
async def test_a_queue_that_is_not_there_is_not_found(sut: Sut, method: str) -> None:
    with pytest.raises(NotFound, match=r"Queue .*/missing does not exist"):
        await getattr(sut.client, method)(name=f"{PARENT}/queues/missing")


async def test_a_deleted_name_stays_blocked_for_three_days(sut: Sut) -> None:
    await sut.client.delete_queue(name=QUEUE)
    for make_again in (make(sut, "q"), sut.client.update_queue(queue={"name": QUEUE})):
        with pytest.raises(FailedPrecondition, match="existed too recently"):
            await make_again
    await sut.step(limits.QUEUE_NAME_TAKEN / 1_000_000 - 0.001)
    with pytest.raises(FailedPrecondition):
        await make(sut, "q")
    await sut.step(0.001)
    await make(sut, "q")


async def test_a_thousand_queues_and_no_more(sut: Sut) -> None:
    for n in range(limits.QUEUES - 1):
        await make(sut, f"n{n}")
    with pytest.raises(ResourceExhausted, match="1000"):
        await make(sut, "one-too-many")
    await sut.client.create_queue(parent="projects/p/locations/l", queue={"name": "projects/p/locations/l/queues/q"})


async def test_queues_are_listed_by_name_in_pages(sut: Sut) -> None:
    for name in ("c", "a", "b"):
        await make(sut, name)
    await sut.client.create_queue(parent="projects/p/locations/l", queue={"name": "projects/p/locations/l/queues/x"})
    pages = [
        [queue.name.rsplit("/")[-1] for queue in page.queues]
        async for page in (await sut.client.list_queues(request={"parent": PARENT, "page_size": 3})).pages
    ]
    assert pages == [["a", "b", "c"], ["q"]]
    assert [queue.name async for queue in await sut.client.list_queues(parent="projects/none/locations/l")] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("state: PAUSED", ["p"]),
        ("state = RUNNING", ["fast", "q"]),
        ("rate_limits.max_dispatches_per_second >= 500 AND state=RUNNING", ["q"]),
        ("rateLimits.maxDispatchesPerSecond < 10", ["fast"]),
        ('name: "fas"', ["fast"]),
    ],
)
async def test_queues_are_filtered(sut: Sut, text: str, names: list[str]) -> None:
    await make(sut, "p")
    await sut.client.pause_queue(name=f"{PARENT}/queues/p")
    await make(sut, "fast", rate_limits={"max_dispatches_per_second": 9})
    listed = await sut.client.list_queues(request={"parent": PARENT, "filter": text})
    assert [queue.name.rsplit("/")[-1] async for queue in listed] == names


@pytest.mark.parametrize("text", ["colour = red", "state", "rate_limits.max_dispatches_per_second > fast"])
async def test_a_filter_that_makes_no_sense_is_refused(sut: Sut, text: str) -> None:
    with pytest.raises(InvalidArgument, match="filter"):
        await sut.client.list_queues(request={"parent": PARENT, "filter": text})


async def test_policies_cmek_and_locations_are_kept_but_not_enforced(sut: Sut) -> None:
    policy = {"bindings": [{"role": "roles/viewer", "members": ["user:a@example.com"]}]}
    await sut.client.set_iam_policy(request={"resource": QUEUE, "policy": policy})
    assert (await sut.client.get_iam_policy(request={"resource": QUEUE})).bindings[0].role == "roles/viewer"
    asked = {"resource": QUEUE, "permissions": ["cloudtasks.tasks.create"]}
    assert list((await sut.client.test_iam_permissions(request=asked)).permissions) == ["cloudtasks.tasks.create"]
    missing = await sut.client.test_iam_permissions(request={**asked, "resource": f"{PARENT}/queues/missing"})
    assert list(missing.permissions) == []
    name = f"{PARENT}/cmekConfig"
    await sut.client.update_cmek_config(cmek_config={"name": name, "kms_key": "k"})
    assert (await sut.client.get_cmek_config(name=name)).kms_key == "k"
    locations = await sut.client.list_locations(request={"name": "projects/tally-local"})
    assert [location.location_id for location in locations.locations] == ["us-central1"]
    assert (await sut.client.get_location(request={"name": PARENT})).name == PARENT
