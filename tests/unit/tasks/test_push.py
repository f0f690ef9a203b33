"""Push queues: the requests that are sent to the service and what it answers."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from tally.clock import SECOND, to_datetime
from tally.errors import InvalidInput
from tally.retry import RetryPolicy
from tally.tasks.push import PushQueue, Target
from tally.tasks.task import Task
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.pushing import DAY, TARGET, World


@pytest.fixture
def world() -> World:
    return World()


def test_a_request_is_sent_as_it_was_given(world: World, run: Go) -> None:
    async def main() -> None:
        task = Task(
            payload=b"a=1",
            content_type="application/x-www-form-urlencoded",
            headers={"x-shop": "7"},
            delay=60,
            dispatch_deadline=100,
            retry=RetryPolicy(max_attempts=2),
        )
        await world.queue.add(task, url="https://shop.example/work?x=1", method="PUT", audience="https://shop.example")
        [sent] = world.dispatcher.tasks.values()
        assert (sent.url, sent.method, sent.body) == ("https://shop.example/work?x=1", "PUT", b"a=1")
        assert sent.headers == {"content-type": "application/x-www-form-urlencoded", "x-shop": "7"}
        assert sent.at == world.clock.now() + 60 * SECOND
        assert (sent.deadline, sent.audience, sent.retry) == (
            105.0,
            "https://shop.example",
            RetryPolicy(max_attempts=2),
        )

    run(main())


@pytest.mark.parametrize(
    ("method", "url", "sent", "body"),
    [
        ("POST", "https://a.example/", "https://a.example/", b"a=1&a=2"),
        ("GET", "https://a.example/", "https://a.example/?a=1&a=2", b""),
        ("DELETE", "https://a.example/?x=y", "https://a.example/?x=y&a=1&a=2", b""),
    ],
)
def test_a_form_is_the_body_or_goes_into_the_url(
    world: World, run: Go, method: Any, url: str, sent: str, body: bytes
) -> None:
    async def main() -> None:
        await world.queue.add(Task.form({"a": ["1", "2"]}), url=url, method=method)
        [task] = world.dispatcher.tasks.values()
        assert (task.url, task.body) == (sent, body)

    run(main())


def test_a_request_that_has_expired_is_not_sent(world: World, run: Go) -> None:
    async def main() -> None:
        await world.queue.add(Task(name="late", delay=60, expires=30), url="https://a.example/late")
        await world.queue.add(Task(name="near", delay=60, expires=90), url="https://a.example/near")
        await world.work()
        urls = [task.url for _, task in world.sent]
        assert "https://a.example/near" in urls
        assert "https://a.example/late" not in urls
        [parked] = [each async for each in world.system.tasks.parked()]
        assert parked.reason == "expired"

    run(main())


def test_names_are_hashed_and_taken_for_a_while(world: World, run: Go) -> None:
    async def main() -> None:
        named = Task(name="20260101-000001")
        assert (await world.queue.add(named, url="https://a.example/")).status == "added"
        assert (await world.queue.add(named, url="https://a.example/")).status == "exists"
        [(_, task_id)] = world.dispatcher.tasks
        assert "2026" not in task_id
        assert await world.queue.delete("20260101-000001")
        assert (await world.queue.add(named, url="https://a.example/")).status == "exists"
        assert not await world.queue.delete("20260101-000001")

    run(main())


def test_add_many_gives_one_outcome_a_task_in_order(world: World, run: Go) -> None:
    async def main() -> None:
        far = Task(name="far", delay=timedelta(days=40))
        tasks = [Task(name="a"), Task(name="a"), far, far, *(Task() for _ in range(146))]
        outcomes = await world.queue.add_many(tasks, url="https://a.example/")
        assert [outcome.status for outcome in outcomes[:2]] == ["added", "exists"]
        assert sorted(outcome.status for outcome in outcomes[2:4]) == ["added", "exists"]
        assert {outcome.status for outcome in outcomes[4:]} == {"added"}
        assert len(world.dispatcher.tasks) == 148
        assert {each.status for each in await world.queue.add_many([Task()], url="no url")} == {"invalid"}

    run(main())


@pytest.mark.parametrize(
    "retry",
    [RetryPolicy(growth="fibonacci"), RetryPolicy(max_attempts=3, max_retry_duration=60, give_up="either")],
)
def test_a_policy_that_the_service_does_not_have_is_refused(world: World, run: Go, retry: RetryPolicy) -> None:
    async def main() -> None:
        with pytest.raises(InvalidInput, match="both limits"):
            await world.queue.add(Task(retry=retry), url="https://a.example/")
        one_limit = RetryPolicy(max_attempts=3, give_up="either")
        assert (await world.queue.add(Task(retry=one_limit), url="https://a.example/")).status == "added"

    run(main())


@pytest.mark.parametrize("url", ["ftp://a.example/", "/relative", "", "https:///path"])
def test_what_is_no_url_is_refused_at_once(world: World, run: Go, url: str) -> None:
    async def main() -> None:
        with pytest.raises(InvalidInput, match="url"):
            await world.queue.add(Task(), url=url)
        assert not world.dispatcher.tasks

    run(main())


def test_a_queue_with_nothing_but_the_service_refuses_what_that_would_not_take(world: World, run: Go) -> None:
    bare = PushQueue("push", world.dispatcher, target=TARGET, clock=world.clock, random=Random(1))

    async def main() -> None:
        for task in (Task(payload=b"x" * 900_001), Task(delay=timedelta(days=29, seconds=1)), Task(expires=9)):
            with pytest.raises(InvalidInput, match="900 kB, 29 days"):
                await bare.add(task, url="https://a.example/")
        assert not world.dispatcher.tasks

    run(main())


def test_a_request_any_time_ahead_is_handed_to_the_service_when_it_is_due(world: World, run: Go) -> None:
    async def main() -> None:
        begin = world.clock.now()
        task = Task(payload=b"hello", name="far", delay=timedelta(days=100), headers={"x": "1"})
        assert (await world.queue.add(task, url="https://a.example/", audience="https://a.example")).status == "added"
        assert (await world.queue.add(task, url="https://a.example/")).status == "exists"
        await world.work()
        at, sent = world.sent[-1]
        assert at - begin == 100 * DAY * SECOND
        assert (sent.url, sent.body, sent.audience) == ("https://a.example/", b"hello", "https://a.example")
        assert sent.headers["x"] == "1"
        assert [task.url for _, task in world.sent].count("https://a.example/") == 1

    run(main())


def test_a_request_far_ahead_can_be_deleted_on_its_way(world: World, run: Go) -> None:
    async def main() -> None:
        await world.queue.add(Task(name="far", delay=timedelta(days=100)), url="https://a.example/")
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(40 * DAY)
        assert await world.queue.delete("far")
        assert not await world.queue.delete("never")
        await working
        assert all(task.url != "https://a.example/" for _, task in world.sent)

    run(main())


def test_a_large_request_is_sent_by_run_task_and_again_until_it_is_answered(world: World, run: Go) -> None:
    async def main() -> None:
        world.statuses = [503, 200]
        body = b"x" * 8_000_000
        await world.queue.add(Task(payload=body, content_type="image/png"), url="https://a.example/")
        assert all(len(task.body) < 1_000 for task in world.dispatcher.tasks.values())
        await world.work()
        assert [(task.url, len(task.body)) for task in world.requests] == [("https://a.example/", 8_000_000)] * 2
        assert world.requests[0].headers["content-type"] == "image/png"

    run(main())


def test_a_payload_at_the_limit_is_taken(world: World, run: Go) -> None:
    async def main() -> None:
        for size in (0, 99_000, 101_000, 900_000):
            await world.queue.add(Task(payload=b"x" * size), url="https://a.example/")
        assert len(world.dispatcher.tasks) == 4

    run(main())


@pytest.mark.parametrize("eta", [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 1_700_000_000, 1.5])  # noqa: DTZ001  # naive is the point
def test_only_aware_datetimes_are_times(world: World, run: Go, eta: Any) -> None:
    @world.registry.task("t", queue="push")
    async def t() -> None: ...

    async def main() -> None:
        with pytest.raises(InvalidInput, match="eta"):
            await t.later(eta=eta).call()

    run(main())


def test_an_aware_time_of_any_zone_is_the_instant_that_it_says(world: World, run: Go) -> None:
    from datetime import timezone

    @world.registry.task("t", queue="push")
    async def t() -> None: ...

    async def main() -> None:
        instant = world.clock.now() + 3_600 * SECOND
        for zone in (UTC, timezone(timedelta(hours=9)), timezone(timedelta(hours=-3, minutes=-30))):
            await t.later(eta=to_datetime(instant).astimezone(zone)).call()
        assert {task.at for task in world.dispatcher.tasks.values()} == {instant}

    run(main())


@pytest.mark.parametrize("days", [2, 100])
def test_a_request_is_sent_now_when_it_is_forced(world: World, run: Go, days: float) -> None:
    async def main() -> None:
        await world.queue.add(Task(name="far", delay=timedelta(days=days)), url="https://a.example/")
        begun = world.clock.now()
        assert await world.queue.run_now("far")
        assert not await world.queue.run_now("none")
        await world.work()
        assert [task.url for _, task in world.sent][-1] == "https://a.example/"
        assert world.sent[-1][0] - begun < 5 * SECOND

    run(main())


def test_purge_pause_resume_and_stats_reach_the_service(world: World, run: Go) -> None:
    async def main() -> None:
        await world.queue.add(Task(), url="https://a.example/")
        assert (await world.queue.stats()).tasks == 1
        await world.queue.pause()
        assert (await world.queue.stats()).paused
        await world.queue.resume()
        await world.queue.purge()
        assert (await world.queue.stats()).tasks == 0

    run(main())


@pytest.mark.parametrize("url", ["run.example", "https://run.example/?a=1", "https://run.example/#x", ""])
def test_a_target_is_a_url_without_query(url: str) -> None:
    with pytest.raises(InvalidInput):
        Target(url=url)
