"""Push queues: what is sent to the service, and what `run_task` does with what the service sends."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from tally.clock import SECOND, to_datetime
from tally.errors import Forbidden, InvalidInput, NotFound, TaskFailed, Unavailable
from tally.ports import HttpTask
from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.deferred import Registry
from tally.tasks.push import DELIVERY_HEADER, PushQueue, Target
from tally.tasks.receiver import PushReceiver
from tally.tasks.run import State
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task
from tally.testing.clock import VirtualClock
from tally.testing.dispatcher import FakeDispatcher
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go

DAY = 86_400
ACCOUNT = "tasks@p.iam.gserviceaccount.com"
TARGET = Target(url="https://run.example/base", audience="https://run.example")


class Verifier:
    """Tokens are "account audience"."""

    async def verify(self, token: str, audience: str) -> str:
        account, _, aud = token.partition("|")
        if aud != audience:
            raise Forbidden("wrong audience")
        return account


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.dispatcher = FakeDispatcher(self.clock)
        self.registry = Registry()
        self.sent: list[tuple[int, HttpTask]] = []
        self.requests: list[HttpTask] = []
        self.statuses: list[int] = []
        self.system = TaskSystem(
            self.registry,
            self.store,
            clock=self.clock,
            random=Random(1),
            dispatcher=self.dispatcher,
            target=TARGET,
            verifier=Verifier(),
            callers=frozenset({ACCOUNT}),
            pushed=frozenset({"push"}),
            send=self.send,
            worker="w",
        )
        self.registry.connect(self.system.tasks)
        self.queue: PushQueue = self.system.push("push")

    async def send(self, task: HttpTask) -> int:
        self.requests.append(task)
        return self.statuses.pop(0)

    async def deliver(self, receiver: PushReceiver, task: HttpTask) -> None:
        headers = {**task.headers, "authorization": f"Bearer {ACCOUNT}|{task.audience}"}
        await receiver.receive("push", headers, task.body)

    async def work(self) -> None:
        """Be Cloud Tasks until nothing is left: send at the time, again a second after a failure."""
        receiver = self.system.receiver()
        failures = 0
        while (due := self.dispatcher.next()) is not None:
            queue, task = due
            await asyncio.sleep(max(0, (task.at or 0) - self.clock.now()) / SECOND)
            self.sent.append((self.clock.now(), task))
            try:
                if task.url.startswith(TARGET.url):
                    await self.deliver(receiver, task)
            except Unavailable:
                failures += 1
                assert failures < 100
                await asyncio.sleep(1)
                continue
            self.dispatcher.take(queue, task.id)


@pytest.fixture
def world() -> World:
    return World()


def test_a_call_is_pushed_to_run_task_with_a_token_for_its_service(world: World, run: Go) -> None:
    @world.registry.task("add", queue="push", timeout=20)
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        handle = await add.call(2, 3)
        [((queue, task_id), task)] = world.dispatcher.tasks.items()
        assert (queue, task.url, task.audience) == (
            "push",
            "https://run.example/base/v1/run/push",
            "https://run.example",
        )
        assert (task.deadline, len(task_id)) == (25.0, 32)
        await world.work()
        assert await handle.result(1) == 5

    run(main())


@pytest.mark.parametrize(
    "authorization",
    ["", "Basic x", "Bearer ", f"Bearer {ACCOUNT}|https://run.example?x=1", "Bearer other@p|https://run.example"],
)
def test_run_task_refuses_any_caller_but_its_own(world: World, run: Go, authorization: str) -> None:
    ran = 0

    @world.registry.task("t", queue="push")
    async def t() -> None:
        nonlocal ran
        ran += 1

    async def main() -> None:
        await t.call()
        task = next(iter(world.dispatcher.tasks.values()))
        headers = {**task.headers, "authorization": authorization, "x-cloudtasks-taskname": "spoofed"}
        with pytest.raises(Forbidden):
            await world.system.receiver().receive("push", headers, task.body)
        assert ran == 0

    run(main())


def test_a_retry_is_a_task_of_its_own_and_the_queue_sees_only_successes(world: World, run: Go) -> None:
    @world.registry.task("bad", queue="push", retry=RetryPolicy(max_attempts=4, min_backoff=10, max_doublings=1))
    async def bad() -> None:
        raise ValueError("no")

    async def main() -> None:
        handle = await bad.call()
        await world.work()
        begin = world.sent[0][0]
        assert [(at - begin) // SECOND for at, _ in world.sent] == [0, 10, 30, 70]
        assert len({task.id for _, task in world.sent}) == 4
        assert (await handle.status()).state is State.FAILED
        assert [parked.reason async for parked in world.system.tasks.parked()] == ["exhausted"]

    run(main())


@pytest.mark.parametrize("days", [0.5, 29.9, 30.1, 100, 400])
def test_any_time_ahead_is_reached_under_one_handle(world: World, run: Go, days: float) -> None:
    ran: list[int] = []

    @world.registry.task("t", queue="push")
    async def t() -> None:
        ran.append(world.clock.now())

    async def main() -> None:
        begin = world.clock.now()
        handle = await t.later(delay=timedelta(days=days)).call()
        assert (await handle.status()).state is State.QUEUED
        await world.work()
        assert [at - begin for at in ran] == [round(days * DAY * SECOND)]
        assert (await handle.status()).attempt == 1
        assert len(world.sent) == days // 29 + 1

    run(main())


def test_a_call_on_its_way_through_hops_can_be_cancelled(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("t", queue="push")
    async def t() -> None:
        nonlocal ran
        ran += 1

    async def main() -> None:
        handle = await t.later(delay=timedelta(days=100)).call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(40 * DAY)
        assert await handle.cancel()
        await working
        assert ran == 0
        assert not world.dispatcher.tasks

    run(main())


def test_large_arguments_travel_beside_the_task(world: World, run: Go) -> None:
    @world.registry.task("size", queue="push")
    async def size(text: str) -> int:
        return len(text)

    async def main() -> None:
        handle = await size.call("x" * 7_900_000)
        [task] = world.dispatcher.tasks.values()
        assert len(task.body) < 1_000
        await world.work()
        assert await handle.result(1) == 7_900_000

    run(main())


def test_a_handler_slower_than_its_deadline_does_not_run_twice(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("slow", queue="push", timeout=4_000)
    async def slow() -> str:
        nonlocal ran
        ran += 1
        await asyncio.sleep(3_000)
        return "done"

    async def main() -> None:
        handle = await slow.call()
        receiver = world.system.receiver()
        _, task = world.dispatcher.next() or pytest.fail("no task")
        first = asyncio.ensure_future(world.deliver(receiver, task))
        await asyncio.sleep(1_800)
        await world.work()
        await first
        assert await handle.result(1) == "done"
        assert ran == 1

    run(main())


def test_a_run_whose_process_died_is_rescued_by_the_next_delivery(world: World, run: Go) -> None:
    from tally.testing.process import Process

    @world.registry.task("t", queue="push")
    async def t() -> str:
        await asyncio.sleep(30)
        return "done"

    async def main() -> None:
        handle = await t.call()
        _, task = world.dispatcher.next() or pytest.fail("no task")
        process = Process("instance")
        process.spawn(world.deliver(world.system.receiver(), task))
        await asyncio.sleep(10)
        process.kill()
        await world.work()
        assert await handle.result(1) == "done"
        assert [attempt.outcome for attempt in (await handle.status()).attempts] == ["lost", "done"]

    run(main())


def test_a_process_that_dies_before_it_sends_the_retry_loses_nothing(world: World, run: Go) -> None:
    """Between the record of the failed attempt and the next task the queue is out; the same delivery comes again."""

    @world.registry.task("t", queue="push", retry=RetryPolicy(max_attempts=3, min_backoff=5))
    async def t() -> None:
        raise ValueError

    async def main() -> None:
        handle = await t.call()
        world.dispatcher.refuse = 6
        await world.work()
        assert (await handle.status()).attempt == 3
        assert (await handle.status()).state is State.FAILED

    run(main())


def test_a_late_copy_of_an_earlier_delivery_starts_nothing(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("t", queue="push", retry=RetryPolicy(max_attempts=2, min_backoff=100))
    async def t() -> None:
        nonlocal ran
        ran += 1
        raise ValueError

    async def main() -> None:
        await t.call()
        _, task = world.dispatcher.next() or pytest.fail("no task")
        receiver = world.system.receiver()
        for _ in range(5):
            await world.deliver(receiver, task)
        assert ran == 1
        world.dispatcher.take("push", task.id)
        assert len(world.dispatcher.tasks) == 1
        await world.work()
        assert ran == 2

    run(main())


@pytest.mark.parametrize(("lost", "refused"), [(1, 0), (0, 1), (3, 0), (1, 1)])
def test_an_enqueue_with_an_unknown_outcome_is_one_task(world: World, run: Go, lost: int, refused: int) -> None:
    @world.registry.task("t", queue="push")
    async def t() -> None: ...

    async def main() -> None:
        world.dispatcher.lose_replies, world.dispatcher.refuse = lost, refused
        await t.call()
        assert len(world.dispatcher.tasks) == 1
        world.dispatcher.lose_replies, world.dispatcher.refuse = lost, refused
        outcome = await world.queue.add(Task(payload=b"x"), url="https://a.example/")
        assert outcome.status == "added"
        assert len(world.dispatcher.tasks) == 2

    run(main())


def test_run_task_takes_calls_that_another_program_created(world: World, run: Go) -> None:
    @world.registry.task("add", queue="push")
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        body = b'{"v":1,"call":"add","id":"from-go","arguments":{"a":1,"b":2}}'
        receiver = world.system.receiver()
        allowed = {"authorization": f"Bearer {ACCOUNT}|https://run.example"}
        await receiver.receive("push", {"x-cloudtasks-taskname": "t-1", **allowed}, body)
        assert await world.system.tasks.handle("from-go").result(1) == 3
        with pytest.raises(InvalidInput):
            await receiver.receive("push", allowed, body)
        with pytest.raises(InvalidInput):
            await receiver.receive("push", {DELIVERY_HEADER: "{", **allowed}, body)

    run(main())


# Requests to URLs of the user's own


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


@pytest.mark.parametrize("eta", [datetime(2026, 1, 1), "2026-01-01T00:00:00Z", 1_700_000_000, 1.5])  # noqa: DTZ001 (naive is the point)
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


@pytest.mark.parametrize("days", [2, 100])
def test_a_call_that_waits_is_run_now(world: World, run: Go, days: float) -> None:
    @world.registry.task("f", queue="push", retry=RetryPolicy(max_attempts=2, min_backoff=3_600))
    async def f() -> int:
        if current().attempt == 1:
            raise ValueError
        return world.clock.now()

    async def main() -> None:
        handle = await f.later(delay=timedelta(days=days)).call()
        begun = world.clock.now()
        assert await world.system.tasks.run_now(handle.id)
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(10)
        assert (await handle.status()).state is State.WAITING
        assert await world.system.tasks.run_now(handle.id)  # its second attempt, an hour early
        working.cancel()  # the service that was asleep until then
        await world.work()
        assert await handle.result(1) - begun < 20 * SECOND
        assert not await world.system.tasks.run_now(handle.id)
        with pytest.raises(NotFound):
            await world.system.tasks.run_now("never")

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


def test_a_failed_run_says_so_to_its_handle(world: World, run: Go) -> None:
    @world.registry.task("bad", queue="push", retry=RetryPolicy(max_attempts=1))
    def bad() -> None:
        raise OSError("disk")

    async def main() -> None:
        handle = await bad.call()
        await world.work()
        with pytest.raises(TaskFailed, match="disk"):
            await handle.result(1)

    run(main())
