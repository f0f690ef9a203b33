"""What the emulator answers beside gRPC: REST, readiness, reset, clock, fault plan, queue.yaml, the one port."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, NotFound, ServiceUnavailable
from google.auth.credentials import AnonymousCredentials
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksRestTransport

from emulator.cloud_tasks.errors import ApiError
from emulator.cloud_tasks.server import Options, emulator
from tests.integration.cloud_tasks.conftest import PARENT, QUEUE, START, URL, Start, Sut, Target, eventually

LATER = "2027-01-15T09:00:00.000000Z"


async def rest(sut: Sut, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
    async with sut.http.request(verb, f"http://{sut.address}/v2/{path}", json=body) as response:
        return response.status, await response.json()


async def test_it_says_that_it_is_ready_and_a_reset_leaves_nothing(sut: Sut) -> None:
    async with sut.http.get(f"http://{sut.address}/") as ready:
        assert ready.status == 200
    await sut.create(URL, name=f"{QUEUE}/tasks/t", schedule_time={"seconds": START // 1_000_000 + 60})
    await sut.client.delete_queue(name=QUEUE)
    await sut.client.create_queue(parent=PARENT, queue={"name": f"{PARENT}/queues/r"})
    await sut.post("/faults", {"rules": [{"kind": "refuse-create"}]})
    assert [row["id"] for row in (await sut.get("/status"))["queues"]] == ["r"]
    await sut.post("/reset")
    assert (await sut.get("/status"))["queues"] == []
    assert (await sut.get("/faults"))["rules"] == []
    await sut.client.create_queue(parent=PARENT, queue={"name": QUEUE})


async def test_rest_speaks_the_same_methods(sut: Sut, target: Target) -> None:
    status, queue = await rest(
        sut, "POST", f"{PARENT}/queues", {"name": f"{PARENT}/queues/r", "retryConfig": {"maxAttempts": 3}}
    )
    assert (status, queue["retryConfig"]["maxAttempts"], queue["state"]) == (200, 3, "RUNNING")
    mask = "updateMask=rateLimits.maxDispatchesPerSecond"
    status, queue = await rest(sut, "PATCH", f"{PARENT}/queues/r?{mask}", {"rateLimits": {"maxDispatchesPerSecond": 7}})
    assert (status, queue["rateLimits"]["maxDispatchesPerSecond"], queue["retryConfig"]["maxAttempts"]) == (200, 7, 3)
    body = base64.b64encode(b"hello").decode()
    request = {
        "task": {"httpRequest": {"url": target.url, "body": body}, "scheduleTime": LATER},
        "responseView": "FULL",
    }
    status, task = await rest(sut, "POST", f"{PARENT}/queues/r/tasks", request)
    assert (status, task["httpRequest"]["body"], task["scheduleTime"]) == (200, body, "2027-01-15T09:00:00Z")
    assert (await rest(sut, "GET", task["name"]))[1]["view"] == "BASIC"
    assert (await rest(sut, "GET", f"{task['name']}?responseView=FULL"))[1]["httpRequest"]["body"] == body
    assert len((await rest(sut, "GET", f"{PARENT}/queues/r/tasks?pageSize=1"))[1]["tasks"]) == 1
    assert len((await rest(sut, "GET", f"{PARENT}/queues?filter=state:RUNNING"))[1]["queues"]) == 2
    for verb in ("pause", "purge", "resume"):
        assert (await rest(sut, "POST", f"{PARENT}/queues/r:{verb}", {}))[0] == 200
    status, task = await rest(
        sut, "POST", f"{PARENT}/queues/r/tasks", {"task": {"httpRequest": {"url": target.url}, "scheduleTime": LATER}}
    )
    assert (await rest(sut, "POST", f"{task['name']}:run", {}))[1]["dispatchCount"] == 1
    await sut.step()
    assert (await rest(sut, "DELETE", task["name"]))[0] == 404
    status, operation = await rest(sut, "POST", f"{PARENT}/queues/r/tasks:batchDelete", {"names": [task["name"]]})
    assert (await rest(sut, "GET", operation["name"]))[1]["done"] is True
    assert await rest(sut, "DELETE", f"{PARENT}/queues/r") == (200, {})
    assert (await rest(sut, "GET", "projects/tally-local/locations"))[1]["locations"][0]["locationId"] == "us-central1"


@pytest.mark.parametrize(
    ("verb", "path", "body", "code", "status"),
    [
        ("GET", f"{PARENT}/queues/none", None, 404, "NOT_FOUND"),
        ("POST", f"{PARENT}/queues", {"name": QUEUE}, 409, "ALREADY_EXISTS"),
        ("POST", f"{PARENT}/queues", {"colour": 1}, 400, "INVALID_ARGUMENT"),
        ("POST", f"{PARENT}/queues", [1], 400, "INVALID_ARGUMENT"),
        ("POST", f"{QUEUE}/tasks", {"task": {"httpRequest": {"url": "x"}}}, 400, "INVALID_ARGUMENT"),
        ("GET", f"{PARENT}/queues?pageSize=many", None, 400, "INVALID_ARGUMENT"),
        ("PUT", QUEUE, None, 404, "NOT_FOUND"),
        ("GET", "projects/x/nothing", None, 404, "NOT_FOUND"),
    ],
)
async def test_an_error_over_rest_has_its_code_and_its_status(
    sut: Sut, verb: str, path: str, body: Any, code: int, status: str
) -> None:
    answered, error = await rest(sut, verb, path, body)
    assert (answered, error["error"]["code"], error["error"]["status"]) == (code, code, status)
    assert error["error"]["message"]


async def test_the_official_client_works_over_rest(sut: Sut) -> None:
    def use() -> list[str]:
        transport = CloudTasksRestTransport(host=sut.address, credentials=AnonymousCredentials(), url_scheme="http")
        with tasks_v2.CloudTasksClient(transport=transport) as client:
            client.pause_queue(name=QUEUE)
            task = {"http_request": {"url": URL, "body": b"\x00\xff"}}
            name = client.create_task(parent=QUEUE, task=task).name
            with pytest.raises(NotFound):
                client.get_task(name=f"{QUEUE}/tasks/none")
            return [each.name for each in client.list_tasks(parent=QUEUE) if each.name == name]

    assert len(await asyncio.to_thread(use)) == 1


async def test_a_stepped_clock_goes_through_every_attempt(sut: Sut, target: Target) -> None:
    target.script = [500] * 3
    await sut.create(target.url, retry_config={"min_backoff": {"seconds": 10}, "max_doublings": 1})
    assert (await sut.post("/clock", {"to": START + 3_600_000_000}))["now"] == START + 3_600_000_000
    etas = [float(seen.headers["x-cloudtasks-tasketa"]) - START / 1_000_000 for seen in target.seen]
    assert [round(eta) for eta in etas] == [0, 10, 30, 70]
    assert (await sut.get("/clock"))["manual"] is True


@pytest.mark.parametrize(
    "body", [{}, {"seconds": 1, "to": 5}, {"seconds": -1}, {"to": START - 1}, {"hours": 1}, "later", {"seconds": 1e300}]
)
async def test_a_clock_step_that_makes_no_sense_is_refused(sut: Sut, body: Any) -> None:
    async with sut.http.post(f"http://{sut.address}/clock", json=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]


async def test_the_machines_clock_cannot_be_stepped_and_runs(start: Start, target: Target) -> None:
    sut: Sut = await start(manual_clock=False)
    async with sut.http.post(f"http://{sut.address}/clock", json={"seconds": 1}) as response:
        assert response.status == 400
    target.script = [500]
    await sut.create(target.url)
    await eventually(lambda: len(target.seen) == 2)
    etas = [float(seen.headers["x-cloudtasks-tasketa"]) for seen in target.seen]
    assert 0.1 <= etas[1] - etas[0] < 5


async def test_a_lost_reply_leaves_the_task_and_a_refused_create_none(sut: Sut, target: Target) -> None:
    name = f"{QUEUE}/tasks/named"
    await sut.post("/faults", {"rules": [{"kind": "refuse-create"}, {"kind": "lose-create-reply", "skip": 0}]})
    with pytest.raises(ServiceUnavailable, match="refuse-create"):
        await sut.create(target.url, name=name)
    await sut.step()
    assert not target.seen
    with pytest.raises(ServiceUnavailable, match="lose-create-reply"):
        await sut.create(target.url, name=name)
    with pytest.raises(AlreadyExists):
        await sut.create(target.url, name=name)
    await sut.step()
    assert len(target.seen) == 1
    assert [rule["hits"] for rule in (await sut.get("/faults"))["rules"]] == [1, 1]


async def test_duplicate_late_lost_and_throttled_dispatches(sut: Sut, target: Target) -> None:
    kinds = ["duplicate-dispatch", "lose-answer", "throttle", "late-dispatch"]
    await sut.post("/faults", {"rules": [{"kind": kind, "queue": "q", "seconds": 0.05} for kind in kinds]})
    await sut.create(target.url)
    await sut.step(0.05)
    assert len(target.seen) == 2  # one attempt, sent twice, and its answer lost
    assert (await sut.get("/status"))["queues"][0]["enforced_rate"] < 500
    await sut.step(60)
    assert len(target.seen) == 3
    assert (await sut.get("/status"))["queues"][0]["tasks"] == 0


async def test_faults_keep_to_their_queue_their_chances_and_their_seed(sut: Sut) -> None:
    rules = [
        {"kind": "refuse-create", "queue": "other", "times": None},
        {"kind": "refuse-create", "skip": 2, "times": 1},
    ]
    await sut.post("/faults", {"rules": rules})
    failures = []
    for n in range(5):
        try:
            await sut.create(URL, schedule_time={"seconds": START // 1_000_000 + 60})
        except ServiceUnavailable:
            failures.append(n)
    assert failures == [2]


async def test_a_fault_plan_that_makes_no_sense_is_refused(sut: Sut) -> None:
    bad: list[Any] = [{"rules": [{"kind": "earthquake"}]}, {"rule": []}, []]
    for body in bad:
        async with sut.http.post(f"http://{sut.address}/faults", json=body) as response:
            assert response.status == 400
    async with sut.http.delete(f"http://{sut.address}/faults") as response:
        assert response.status == 200


YAML = """
queue:
- name: mail
  rate: 10/s
  bucket_size: 40
  max_concurrent_requests: 8
  target: v2.worker
  retry_parameters:
    {task_retry_limit: 3, task_age_limit: 2d, min_backoff_seconds: 2, max_backoff_seconds: 9, max_doublings: 0}
- name: slow
  rate: 30/m
- name: pulled
  mode: pull
"""


async def test_a_queue_yaml_is_imported(start: Start, tmp_path: Path, target: Target) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(YAML)
    sut: Sut = await start(queue_yaml=file, queues=(), app_engine=target.url)
    queues = {queue.name.rsplit("/", 1)[1]: queue async for queue in await sut.client.list_queues(parent=PARENT)}
    assert sorted(queues) == ["mail", "slow"]
    mail, slow = queues["mail"], queues["slow"]
    assert mail.rate_limits.max_dispatches_per_second == 10
    assert (mail.rate_limits.max_burst_size, mail.rate_limits.max_concurrent_dispatches) == (40, 8)
    assert mail.retry_config.max_attempts == 4
    assert mail.retry_config.max_retry_duration.total_seconds() == 2 * 86_400
    assert (mail.retry_config.min_backoff.total_seconds(), mail.retry_config.max_backoff.total_seconds()) == (2, 9)
    assert mail.retry_config.max_doublings == 0
    assert mail.app_engine_routing_override.service == "worker"
    assert (slow.rate_limits.max_dispatches_per_second, slow.rate_limits.max_burst_size) == (0.5, 5)
    assert slow.retry_config.max_attempts == -1
    name = f"{mail.name}/tasks/once"
    await sut.create(target.url, queue=mail.name, name=name)
    await sut.step(9 * 86_400 - 1)
    with pytest.raises(AlreadyExists, match="too recently"):
        await sut.create(target.url, queue=mail.name, name=name)
    await sut.step(1)
    await sut.create(target.url, queue=mail.name, name=name)


async def test_a_queue_that_a_new_queue_yaml_leaves_out_is_disabled(tmp_path: Path) -> None:
    file, state = tmp_path / "queue.yaml", tmp_path / "state.db"
    options = Options(queue_yaml=file, state=state, queues=("own",), manual_clock=True)
    seen = []
    for text in (YAML, "queue:\n- name: slow\n", YAML):
        file.write_text(text)
        async with emulator(options) as running:
            seen.append({queue.name.rsplit("/", 1)[1]: queue.message.state for queue in running.queues.all()})
    running_all, disabled = {"mail": 1, "own": 1, "slow": 1}, {"mail": 3, "own": 1, "slow": 1}
    assert seen == [running_all, disabled, running_all]


async def test_a_queue_yaml_past_a_limit_is_refused(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text("queue:\n- {name: a, rate: 501/s}")
    with pytest.raises(ApiError, match="at most 500"):
        await start(queue_yaml=file)


async def test_the_port_takes_a_request_that_comes_in_pieces(sut: Sut) -> None:
    host, port = sut.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in (b"G", b"E", b"T / HTTP/1.1\r\nHost: x\r\n", b"\r\n"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()


async def test_a_connection_that_says_nothing_or_little_harms_nobody(sut: Sut) -> None:
    host, port = sut.address.split(":")
    for greeting in (b"", b"PR", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage", b"\x00\x01\x02\x03"):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(greeting)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert (await sut.client.get_queue(name=QUEUE)).name == QUEUE
