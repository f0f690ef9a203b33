"""When attempts are sent, how they are judged, and when they are repeated, seen from the target."""

import asyncio
from itertools import pairwise

import pytest
from aiohttp import web
from google.api_core.exceptions import NotFound
from google.cloud import tasks_v2

from tests.integration.cloud_tasks.conftest import QUEUE, START, URL, Start, Sut, Target, eventually

SECOND = 1_000_000


async def test_a_task_is_sent_once_and_is_gone(sut: Sut, target: Target) -> None:
    task = await sut.create(
        f"{target.url}/work?x=1", http={"body": b"hello", "headers": {"Content-Type": "text/plain"}}
    )
    assert await sut.step() in (0, 1)
    [seen] = target.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/work?x=1", b"hello")
    assert seen.headers["content-type"] == "text/plain"
    assert await sut.gone(task.name)
    assert await sut.step(86_400) == 0


@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_every_2xx_is_success(sut: Sut, target: Target, status: int) -> None:
    target.script = [status]
    task = await sut.create(target.url)
    await sut.step()
    assert await sut.gone(task.name)


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 3), (401, 16), (403, 7), (404, 5), (409, 10), (429, 8), (418, 2), (500, 13), (501, 12), (502, 2), (503, 14)],
)
async def test_every_other_status_is_tried_again(sut: Sut, target: Target, status: int, code: int) -> None:
    target.script = [status]
    task = await sut.create(target.url)
    await sut.step()
    failed = await sut.client.get_task(name=task.name)
    assert (failed.dispatch_count, failed.response_count) == (1, 1)
    assert failed.last_attempt.response_status.code == code
    assert failed.last_attempt.response_status.message.endswith(f"HTTP status code {status}")
    await sut.step(60)
    assert len(target.seen) == 2
    assert await sut.gone(task.name)


async def test_a_closed_connection_and_a_refused_one_are_tried_again(sut: Sut, target: Target) -> None:
    async def hang_up() -> web.StreamResponse:
        raise asyncio.CancelledError

    target.script = [hang_up]
    task = await sut.create(target.url)
    nowhere = await sut.create(URL)
    await sut.step(0.05)
    for failed in [await sut.client.get_task(name=each.name) for each in (task, nowhere)]:
        assert (failed.dispatch_count, failed.response_count) == (1, 0)
        assert failed.last_attempt.response_status.code == 14
    await sut.step(0.05)
    assert await sut.gone(task.name)


async def test_back_off_doubles_then_grows_by_as_much_to_its_most(sut: Sut, target: Target) -> None:
    retry = {"min_backoff": {"seconds": 10}, "max_backoff": {"seconds": 300}, "max_doublings": 3, "max_attempts": 9}
    await sut.set_queue(retry_config=retry)
    target.script = [500] * 9
    task = await sut.create(target.url)
    await sut.step(10_000)
    etas = [float(seen.headers["x-cloudtasks-tasketa"]) for seen in target.seen]
    assert [round(b - a) for a, b in pairwise(etas)] == [10, 20, 40, 80, 160, 240, 300, 300]
    assert await sut.gone(task.name)


async def test_both_limits_must_be_used_up_and_minus_one_goes_on(sut: Sut, target: Target) -> None:
    every = {"seconds": 60}
    retry = {"min_backoff": every, "max_backoff": every, "max_attempts": 3, "max_retry_duration": {"seconds": 300}}
    target.script = [500] * 1_000
    await sut.create(target.url, retry_config=retry)
    await sut.step(86_400)
    assert len(target.seen) == 7  # at 0 … 360 s: more than 300 s have passed only then
    await sut.create(target.url, retry_config={"min_backoff": every, "max_backoff": every, "max_attempts": -1})
    await sut.step(600 * 60)
    assert len(target.seen) == 7 + 601


async def test_a_tasks_own_retry_config_overrides_the_queues(sut: Sut, target: Target) -> None:
    target.script = [500] * 10
    task = await sut.create(target.url, retry_config={"max_attempts": 2, "min_backoff": {"seconds": 1}})
    assert task.retry_config.max_attempts == 2
    await sut.step(3_600)
    assert len(target.seen) == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_overload_honours_retry_after_and_slows_the_whole_queue(sut: Sut, target: Target, status: int) -> None:
    target.script = [status]
    target.headers = {"Retry-After": "30"}
    task = await sut.create(target.url)
    await sut.step()
    waiting = await sut.client.get_task(name=task.name)
    assert waiting.schedule_time.timestamp() == pytest.approx(START / SECOND + 30, abs=0.001)
    [row] = (await sut.get("/status"))["queues"]
    assert row["enforced_rate"] == 250
    await sut.step(60)
    [row] = (await sut.get("/status"))["queues"]
    assert row["enforced_rate"] == 500


async def test_an_app_engine_429_does_not_slow_the_queue_and_a_503_does(start: Start, target: Target) -> None:
    sut: Sut = await start(app_engine=target.url)
    rates = []
    for status in (429, 503):
        target.script = [status]
        await sut.client.create_task(parent=QUEUE, task={"app_engine_http_request": {}})
        await sut.step()
        rates.append((await sut.get("/status"))["queues"][0]["enforced_rate"])
    assert rates == [500, 250]


async def test_a_target_that_does_not_answer_meets_the_dispatch_deadline(sut: Sut, target: Target) -> None:
    cancelled = asyncio.Event()

    async def hang() -> web.StreamResponse:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return web.Response()

    target.script = [hang]
    task = await sut.create(target.url, dispatch_deadline={"seconds": 15})
    await sut.step(14.9)
    running = await sut.client.get_task(name=task.name)
    assert (running.dispatch_count, running.response_count) == (1, 0)
    assert not running.last_attempt.response_time
    await sut.step(0.1)
    late = await sut.client.get_task(name=task.name)
    assert late.last_attempt.response_status.code == 4
    assert late.response_count == 0
    await sut.step(1)
    assert len(target.seen) == 2
    assert await sut.gone(task.name)


async def test_an_eta_is_kept_to_the_microsecond(sut: Sut, target: Target) -> None:
    await sut.create(target.url, schedule_time={"seconds": 1_800_000_100, "nanos": 123_456_789})
    assert await sut.step(100.123455) == 0
    assert await sut.step(0.000001) == 1


async def test_rate_burst_and_concurrency_bound_dispatches(sut: Sut, target: Target) -> None:
    await sut.set_queue(rate_limits={"max_dispatches_per_second": 5, "max_concurrent_dispatches": 2})
    await sut.client.pause_queue(name=QUEUE)
    for _ in range(20):
        await sut.create(target.url)
    await sut.client.resume_queue(name=QUEUE)
    await sut.step()
    assert len(target.seen) == 5
    await sut.step(1)
    assert len(target.seen) == 10
    await sut.step(10)
    assert len(target.seen) == 20


async def test_no_more_than_the_allowed_attempts_are_unanswered(sut: Sut, target: Target) -> None:
    await sut.set_queue(rate_limits={"max_concurrent_dispatches": 2})
    release = asyncio.Event()

    async def wait() -> web.StreamResponse:
        await release.wait()
        return web.Response()

    target.script = [wait] * 5
    for _ in range(5):
        await sut.create(target.url)
    stepping = asyncio.create_task(sut.step())
    await eventually(lambda: len(target.seen) == 2)
    assert (await sut.get("/status"))["queues"][0]["in_flight"] == 2
    assert len(target.seen) == 2
    release.set()
    await stepping
    assert len(target.seen) == 5


async def test_a_paused_queue_sends_nothing_and_run_task_sends_all_the_same(sut: Sut, target: Target) -> None:
    await sut.client.pause_queue(name=QUEUE)
    target.script = [500]
    task = await sut.create(target.url, schedule_time={"seconds": 1_800_000_500})
    await sut.step(1_000)
    assert not target.seen
    sent = await sut.client.run_task(name=task.name)
    assert (sent.dispatch_count, sent.response_count) == (1, 0)
    await sut.step()
    failed = await sut.client.get_task(name=task.name)
    assert failed.schedule_time.timestamp() == pytest.approx(START / SECOND + 1_000.1, abs=0.001)
    await sut.client.run_task(name=task.name)
    await sut.step()
    assert len(target.seen) == 2
    with pytest.raises(NotFound):
        await sut.client.run_task(name=task.name)


async def test_purge_and_delete_stop_what_waits(sut: Sut, target: Target) -> None:
    later = {"seconds": 1_800_000_010}
    for _ in range(3):
        await sut.create(target.url, schedule_time=later)
    purged = await sut.client.purge_queue(name=QUEUE)
    assert purged.purge_time.timestamp() == START / SECOND
    task = await sut.create(target.url, schedule_time=later)
    await sut.client.delete_task(name=task.name)
    await sut.step(100)
    assert not target.seen


async def test_a_slow_start_when_asked_for(start: Start, target: Target) -> None:
    sut: Sut = await start(ramp=True)
    [row] = (await sut.get("/status"))["queues"]
    assert row["enforced_rate"] == 50
    await sut.step(5)
    [row] = (await sut.get("/status"))["queues"]
    assert row["enforced_rate"] == 100


async def test_a_task_older_than_31_days_is_dropped(sut: Sut, target: Target) -> None:
    await sut.client.pause_queue(name=QUEUE)
    task = await sut.create(target.url)
    await sut.step(31 * 86_400 - 1)
    assert (await sut.client.get_task(name=task.name)).view == tasks_v2.Task.View.BASIC
    await sut.step(1)
    assert await sut.gone(task.name)
