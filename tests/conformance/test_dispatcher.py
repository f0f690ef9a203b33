"""The Dispatcher port: the same tests on the fake, on embedded's store and on the Cloud Tasks emulator."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tally import config, gcp
from tally.bootstrap import open_backend
from tally.clock import SECOND, SystemClock
from tally.errors import Refused
from tally.ports import Dispatcher, HttpTask
from tally.retry import RetryPolicy
from tally.tasks.dispatch import StoreDispatcher
from tally.testing.dispatcher import FakeDispatcher

QUEUE = "mail"
HOUR = 3_600 * SECOND


@pytest.fixture(params=["fake", "embedded", "emulator"])
async def dispatcher(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Dispatcher]:
    clock = SystemClock()
    if request.param == "fake":
        yield FakeDispatcher(clock)
        return
    environ = {"TALLY_STATE": str(tmp_path), "TALLY_PUSH_QUEUES": QUEUE, "TALLY_PROJECT": f"push-{uuid4().hex[:12]}"}
    if request.param == "embedded":
        backend = await open_backend(config.load(environ | {"TALLY_BACKEND": "embedded"}))
        yield StoreDispatcher(backend.store, clock)
        await backend.close()
        return
    environ |= {
        "TALLY_BACKEND": "emulator",
        "CLOUD_TASKS_EMULATOR_HOST": request.getfixturevalue("cloud_tasks_host"),
        "DATASTORE_EMULATOR_HOST": "127.0.0.1:1",  # not asked
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
    }
    opened, _, _ = await gcp.open_push(config.load(environ))
    yield opened
    await opened.close()


def later(task_id: str, body: bytes = b"x", **options: object) -> HttpTask:
    fields: dict[str, object] = {"at": SystemClock().now() + HOUR, "headers": {"a": "b"}} | options
    return HttpTask(id=task_id, url="http://127.0.0.1:9/", body=body, **fields)  # type: ignore[arg-type]  # by the caller


async def test_an_id_can_be_created_once(dispatcher: Dispatcher) -> None:
    await dispatcher.create(QUEUE, later("one"))
    with pytest.raises(Refused) as caught:
        await dispatcher.create(QUEUE, later("one"))
    assert caught.value.status == "ALREADY_EXISTS"
    assert (await dispatcher.stats(QUEUE)).tasks == 1


async def test_an_id_stays_taken_after_its_deletion(dispatcher: Dispatcher) -> None:
    await dispatcher.create(QUEUE, later("one"))
    assert await dispatcher.delete(QUEUE, "one")
    assert not await dispatcher.delete(QUEUE, "one")
    with pytest.raises(Refused) as caught:
        await dispatcher.create(QUEUE, later("one"))
    assert caught.value.status == "ALREADY_EXISTS"


async def test_deleting_what_was_never_there_is_false(dispatcher: Dispatcher) -> None:
    assert not await dispatcher.delete(QUEUE, "never")


async def test_every_field_is_taken(dispatcher: Dispatcher) -> None:
    task = later(
        "all",
        method="PUT",
        audience="https://run.example",
        deadline=30.5,
        retry=RetryPolicy(max_attempts=5, max_retry_duration=60, min_backoff=0.5, max_backoff=10, max_doublings=3),
    )
    await dispatcher.create(QUEUE, task)
    assert (await dispatcher.stats(QUEUE)).tasks == 1


async def test_a_task_can_be_run_now_also_while_the_queue_is_paused(dispatcher: Dispatcher) -> None:
    await dispatcher.create(QUEUE, later("one"))
    await dispatcher.pause(QUEUE)
    assert await dispatcher.run(QUEUE, "one")
    assert (await dispatcher.stats(QUEUE)).tasks == 1
    assert await dispatcher.delete(QUEUE, "one")
    assert not await dispatcher.run(QUEUE, "one")
    assert not await dispatcher.run(QUEUE, "never")


@pytest.mark.parametrize("size", [0, 900_000])
async def test_a_payload_at_the_limit_is_taken(dispatcher: Dispatcher, size: int) -> None:
    await dispatcher.create(QUEUE, later("large", b"x" * size))
    assert (await dispatcher.stats(QUEUE)).tasks == 1


async def test_an_eta_29_days_ahead_is_taken_and_told(dispatcher: Dispatcher) -> None:
    far = SystemClock().now() + 29 * 24 * HOUR
    await dispatcher.create(QUEUE, later("far", at=far))
    assert (await dispatcher.stats(QUEUE)).oldest_eta == far
    near = SystemClock().now() + HOUR
    await dispatcher.create(QUEUE, later("near", at=near))
    assert (await dispatcher.stats(QUEUE)).oldest_eta == near


async def test_a_pause_is_told_and_ends(dispatcher: Dispatcher) -> None:
    await dispatcher.create(QUEUE, later("one"))
    assert not (await dispatcher.stats(QUEUE)).paused
    await dispatcher.pause(QUEUE)
    assert (await dispatcher.stats(QUEUE)).paused
    await dispatcher.resume(QUEUE)
    stats = await dispatcher.stats(QUEUE)
    assert (stats.paused, stats.tasks) == (False, 1)


async def test_a_purge_leaves_nothing(dispatcher: Dispatcher) -> None:
    for number in range(5):
        await dispatcher.create(QUEUE, later(f"t{number}"))
    await dispatcher.purge(QUEUE)
    assert (await dispatcher.stats(QUEUE)).tasks == 0
