"""The life of a call, from its enqueue to its result, on fakes and in virtual time."""

import asyncio
import heapq
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tally.clock import SECOND
from tally.errors import ConfigError, Conflict, InvalidInput, NotFound, TaskFailed, Unavailable
from tally.retry import RetryPolicy
from tally.tasks import call as calls
from tally.tasks.call import Delivery
from tally.tasks.client import Tasks
from tally.tasks.context import Context, Discard, Retry, current, progress
from tally.tasks.deferred import Registry, hand_back
from tally.tasks.middleware import Middleware
from tally.tasks.pool import WorkerPool
from tally.tasks.run import State
from tally.tasks.runner import Runner
from tally.tasks.task import Unique
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go

FAST = RetryPolicy(max_attempts=3, min_backoff=1.0, max_backoff=10.0)


async def nothing() -> None: ...


class Line:
    """A carrier and its workers: brings each delivery at its time, and again when the runner says so."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.waiting: list[tuple[int, int, Delivery]] = []
        self.names: set[str] = set()
        self.fail = 0
        self.count = 0

    async def carry(self, delivery: Delivery) -> None:
        self.count += 1
        if delivery.name not in self.names:
            self.names.add(delivery.name)
            heapq.heappush(self.waiting, (delivery.due, self.count, delivery))
        if self.fail:
            self.fail -= 1
            raise Unavailable("the reply was lost")

    async def hurry(self, name: str) -> bool:
        for place, (_, count, delivery) in enumerate(self.waiting):
            if delivery.name == name:
                self.waiting[place] = (self.clock.now(), count, delivery)
                heapq.heapify(self.waiting)
                return True
        return False

    async def work(self, runner: Runner) -> None:
        """Bring everything until nothing is left."""
        while self.waiting:
            due, _, delivery = heapq.heappop(self.waiting)
            await asyncio.sleep(max(0, due - self.clock.now()) / SECOND)
            again = await runner.run(delivery)
            if again is not None:
                if again.hop is None:
                    self.names.discard(delivery.name)
                await self.carry(replace(delivery, due=again.at, hop=again.hop))


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.registry = Registry()
        self.line = Line(self.clock)
        self.random = Random(1)
        self.tasks = Tasks(self.registry, self.store, lambda _: self.line, clock=self.clock, random=self.random)
        self.registry.connect(self.tasks)

    def runner(self, worker: str = "w1") -> Runner:
        return Runner(
            self.registry,
            self.tasks.runs,
            self.store,
            WorkerPool(10),
            clock=self.clock,
            random=self.random,
            worker=worker,
        )

    async def work(self) -> None:
        await self.line.work(self.runner())

    async def parked(self) -> list[tuple[str, str]]:
        return [(parked.call, parked.reason) async for parked in self.tasks.parked()]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_call_runs_and_its_result_is_there(world: World, run: Go, kind: str) -> None:
    async def add_async(a: int, b: int = 1) -> int:
        return a + b

    def add(a: int, b: int = 1) -> int:
        return a + b

    deferred = world.registry.task("add")(add_async if kind == "async" else add)

    async def main() -> None:
        handle = await deferred.call(2, b=3)
        assert (await handle.status()).state is State.QUEUED
        await world.work()
        assert await handle.result(1) == 5
        status = await handle.status()
        assert (status.state, status.attempt, status.attempts[0].worker) == (State.DONE, 1, "w1")
        assert status.attempts[0].ended is not None

    run(main())


def test_a_registered_function_can_still_be_called_as_itself(world: World) -> None:
    @world.registry.task("add")
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, 2) == 3


def test_bad_arguments_are_refused_at_the_enqueue_and_nothing_is_queued(world: World, run: Go) -> None:
    @world.registry.task("add")
    def add(a: int) -> None: ...

    async def main() -> None:
        for bad in ("1", 1.5, None, lambda: 1):
            with pytest.raises(InvalidInput, match="'a'"):
                await add.call(bad)  # type: ignore[arg-type]  # the point
        assert not world.line.waiting
        assert not world.store.entities

    run(main())


def test_a_name_may_be_registered_once(world: World) -> None:
    world.registry.task("x")(nothing)
    with pytest.raises(Conflict, match="'x'"):
        world.registry.task("x")(nothing)


def test_a_call_without_a_queue_system_says_so(run: Go) -> None:
    lonely = Registry().task("x")(nothing)

    async def main() -> None:
        with pytest.raises(ConfigError, match="no task queue"):
            await lonely.call()

    run(main())


def test_task_shows_the_call_as_any_language_may_write_it(world: World, run: Go) -> None:
    @world.registry.task("mail.send")
    async def send(to: str) -> str:
        return f"sent to {to}"

    task = send.later(tag="t", delay=5).task("you")
    assert task.payload == b'{"v":1,"call":"mail.send","arguments":{"to":"you"},"keep":86400.0}'

    async def main() -> None:
        payload = b'{"v":1,"call":"mail.send","arguments":{"to":"me"}}'
        await world.line.carry(Delivery(queue="default", id="from-go", payload=payload))
        await world.work()
        assert await world.tasks.handle("from-go").result(1) == "sent to me"

    run(main())


def test_delay_and_eta_are_kept(world: World, run: Go) -> None:
    started: list[int] = []

    @world.registry.task("t")
    async def t() -> None:
        started.append(world.clock.now())

    async def main() -> None:
        begin = world.clock.now()
        await t.later(delay=3600).call()
        await world.work()
        assert started == [begin + 3600 * SECOND]

    run(main())


def test_a_failure_is_retried_by_the_policy_and_then_parked_with_its_traceback(world: World, run: Go) -> None:
    starts: list[float] = []

    @world.registry.task("bad", retry=FAST)
    async def bad() -> None:
        starts.append(world.clock.now() / SECOND)
        raise ValueError("é" * 1_501 + " no")

    async def main() -> None:
        handle = await bad.call()
        await world.work()
        status = await handle.status()
        assert status.state is State.FAILED
        assert [attempt.outcome for attempt in status.attempts] == ["failed", "failed", "failed"]
        assert "no" in status.error
        assert "in bad" in status.traceback
        assert [round(b - a, 3) for a, b in pairwise(starts)] == [1.0, 2.0]
        with pytest.raises(TaskFailed, match=r"bad .* failed: ValueError") as caught:
            await handle.result(1)
        assert "ValueError" in caught.value.traceback
        assert await world.parked() == [("bad", "exhausted")]

    run(main())


def test_a_replayed_call_runs_again_with_its_history(world: World, run: Go) -> None:
    broken = True

    @world.registry.task("fix", retry=RetryPolicy(max_attempts=1))
    async def fix(x: int) -> int:
        if broken:
            raise ValueError
        return x

    async def main() -> None:
        nonlocal broken
        handle = await fix.call(7)
        await world.work()
        broken = False
        again = await world.tasks.replay(handle.id)
        await world.work()
        assert await again.result(1) == 7
        assert (await again.status()).attempt == 2
        assert await world.parked() == []
        with pytest.raises(NotFound):
            await world.tasks.replay(handle.id)

    run(main())


def test_retry_asks_for_another_run_at_a_time_of_its_own(world: World, run: Go) -> None:
    seen: list[tuple[int, int]] = []

    @world.registry.task("later", retry=FAST)
    async def later() -> str:
        seen.append((current().attempt, world.clock.now() // SECOND))
        if len(seen) < 3:
            raise Retry("not ready", after=100, counts=False)
        return "ok"

    async def main() -> None:
        handle = await later.call()
        await world.work()
        assert await handle.result(1) == "ok"
        assert [attempt for attempt, _ in seen] == [1, 2, 3]
        assert seen[2][1] - seen[0][1] == 200
        assert [attempt.outcome for attempt in (await handle.status()).attempts] == ["retry", "retry", "done"]

    run(main())


def test_retry_that_counts_meets_the_limit(world: World, run: Go) -> None:
    @world.registry.task("later", retry=FAST)
    async def later() -> None:
        raise Retry(after=1)

    async def main() -> None:
        handle = await later.call()
        await world.work()
        assert (await handle.status()).attempt == 3
        assert await world.parked() == [("later", "exhausted")]

    run(main())


def test_discard_ends_a_run_without_retry_or_dead_letter(world: World, run: Go) -> None:
    @world.registry.task("drop")
    async def drop() -> None:
        raise Discard("user is gone")

    async def main() -> None:
        handle = await drop.call()
        await world.work()
        status = await handle.status()
        assert (status.state, status.error, status.attempt) == (State.DISCARDED, "user is gone", 1)
        assert await world.parked() == []

    run(main())


def test_a_fatal_error_is_not_retried(world: World, run: Go) -> None:
    @world.registry.task("f", fatal=(KeyError,))
    async def f() -> None:
        raise KeyError("x")

    async def main() -> None:
        handle = await f.call()
        await world.work()
        assert (await handle.status()).attempt == 1
        assert await world.parked() == [("f", "fatal")]

    run(main())


def test_only_the_named_errors_are_retried(world: World, run: Go) -> None:
    @world.registry.task("f", retry=FAST, retry_for=(ConnectionError,), fatal=lambda error: "never" in str(error))
    async def f(message: str) -> None:
        raise ValueError(message) if message == "wrong" else ConnectionResetError(message)

    async def main() -> None:
        attempts = []
        for message in ("busy", "never again", "wrong"):
            handle = await f.call(message)
            await world.work()
            attempts.append((await handle.status()).attempt)
        assert attempts == [3, 1, 1]
        assert sorted(reason for _, reason in await world.parked()) == ["exhausted", "fatal", "fatal"]

    run(main())


def test_an_error_that_is_no_failure_uses_up_no_attempt_and_is_not_tried_ever_so_fast(world: World, run: Go) -> None:
    starts: list[int] = []

    @world.registry.task("f", retry=FAST, uncounted=(ConnectionError,))
    async def f() -> None:
        starts.append(world.clock.now() // SECOND)
        raise ConnectionError if len(starts) <= 6 else ValueError

    async def main() -> None:
        handle = await f.call()
        await world.work()
        status = await handle.status()
        assert (status.attempt, status.state) == (9, State.FAILED)  # six that are free, three that count
        assert [b - a for a, b in pairwise(starts)] == [1, 2, 4, 8, 10, 10, 1, 2]

    run(main())


def test_retry_is_no_error_to_the_functions_rules(world: World, run: Go) -> None:
    @world.registry.task("f", retry=FAST, fatal=(Exception,), retry_for=())
    async def f() -> str:
        if current().attempt < 3:
            raise Retry(after=1)
        return "ok"

    async def main() -> None:
        handle = await f.call()
        await world.work()
        assert await handle.result(1) == "ok"

    run(main())


def test_a_timeout_fails_the_attempt(world: World, run: Go) -> None:
    @world.registry.task("slow", timeout=5, retry=RetryPolicy(max_attempts=1))
    async def slow() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        handle = await slow.call()
        begin = world.clock.now()
        await world.work()
        assert (await handle.status()).error.startswith("TimeoutError")
        assert world.clock.now() - begin == 5 * SECOND

    run(main())


def test_a_result_that_cannot_be_written_fails_the_run_once(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("odd")
    async def odd() -> Any:
        nonlocal ran
        ran += 1
        return object()

    async def main() -> None:
        handle = await odd.call()
        await world.work()
        assert "the result of" in (await handle.status()).error
        assert ran == 1

    run(main())


@pytest.mark.parametrize("size", [0, 199_000, 200_001, 899_999, 900_001, 7_900_000])
def test_arguments_and_results_of_any_size_travel(world: World, run: Go, size: int) -> None:
    @world.registry.task("echo")
    async def echo(text: str) -> str:
        return text

    async def main() -> None:
        text = "x" * size
        handle = await echo.call(text)
        assert len(world.line.waiting[0][2].payload) < 300_000
        await world.work()
        assert await handle.result(1) == text
        await handle.forget()
        with pytest.raises(NotFound):
            await handle.status()

    run(main())


def test_arguments_past_the_limit_are_refused(world: World, run: Go) -> None:
    @world.registry.task("echo")
    async def echo(text: str) -> None: ...

    async def main() -> None:
        with pytest.raises(InvalidInput, match="11200000"):
            await echo.call("x" * 11_200_000)
        assert not world.line.waiting

    run(main())


def test_an_unknown_task_is_tried_for_a_while_then_parked_and_replayed_after_the_deploy(world: World, run: Go) -> None:
    old = Registry()

    @old.task("moved")
    async def moved(x: int) -> int:
        return x

    async def main() -> None:
        old.connect(world.tasks)
        handle = await moved.call(3)
        await world.work()
        status = await handle.status()
        assert (status.state, status.attempt) == (State.PARKED, 5)
        assert "'moved'" in status.error
        assert await world.parked() == [("moved", "unknown or undecodable")]
        with pytest.raises(TaskFailed):
            await handle.result(1)
        world.registry.functions["moved"] = moved
        await world.tasks.replay(handle.id)
        await world.work()
        assert await handle.result(1) == 3

    run(main())


def test_an_upgrade_renames_a_call_and_changes_its_arguments(world: World, run: Go) -> None:
    old = Registry()

    @old.task("mail.send_v1")
    async def send_v1(address: str) -> None: ...

    @world.registry.task("mail.send")
    async def send(to: list[str]) -> int:
        return len(to)

    @world.registry.upgrade("mail.send_v1")
    def _(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "mail.send", {"to": [arguments["address"]]}

    async def main() -> None:
        old.connect(world.tasks)
        handle = await send_v1.call("a@b")
        await world.work()
        assert await handle.result(1) == 1

    run(main())


def test_upgrades_in_a_circle_are_parked(world: World, run: Go) -> None:
    world.registry.upgrade("a")(lambda arguments: ("b", arguments))
    world.registry.upgrade("b")(lambda arguments: ("a", arguments))

    async def main() -> None:
        await world.line.carry(Delivery(queue="q", id="i", payload=b'{"v":1,"call":"a"}'))
        await world.work()
        assert await world.parked() == [("a", "unknown or undecodable")]

    run(main())


@pytest.mark.parametrize(
    "payload", [b"", b"\x80\x04cposix\nsystem\n.", b'{"v":2,"call":"x"}', b'{"v":1}', b"[" * 100_000]
)
def test_what_is_no_call_is_parked_at_once(world: World, run: Go, payload: bytes) -> None:
    async def main() -> None:
        await world.line.carry(Delivery(queue="q", id="i", payload=payload))
        await world.work()
        [parked] = [parked async for parked in world.tasks.parked()]
        assert (parked.payload, parked.reason) == (payload, "undecodable")
        assert (await world.tasks.handle("i").status()).state is State.PARKED

    run(main())


def test_a_name_is_taken_once_and_gives_the_same_handle(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("once")
    async def once() -> None:
        nonlocal ran
        ran += 1

    async def main() -> None:
        first = await once.later(name="n").call()
        second = await once.later(name="n").call()
        await world.work()
        third = await once.later(name="n").call()
        await world.work()
        assert (first.created, second.created, third.created) == (True, False, False)
        assert first.id == second.id == third.id
        assert ran == 1

    run(main())


def test_a_unique_call_may_come_again_after_its_period(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("daily")
    async def daily() -> None:
        nonlocal ran
        ran += 1

    async def main() -> None:
        unique = Unique(period=3600, key="report")
        for pause in (0, 1800, 1801):
            await asyncio.sleep(pause)
            await daily.later(unique=unique).call()
            await world.work()
        assert ran == 2

    run(main())


def test_an_enqueue_whose_reply_was_lost_is_tried_again_and_runs_once(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("once")
    async def once() -> None:
        nonlocal ran
        ran += 1

    async def main() -> None:
        world.line.fail = 2
        await once.call()
        world.line.fail = 9
        with pytest.raises(Unavailable):
            await once.later(name="n").call()
        world.line.fail = 0
        await once.later(name="n").call()
        await world.work()
        assert ran == 2

    run(main())


def test_result_without_a_worker_gives_up_after_its_timeout(world: World, run: Go) -> None:
    never = world.registry.task("never")(nothing)

    async def main() -> None:
        handle = await never.call()
        with pytest.raises(TimeoutError, match="queued after 30 s"):
            await handle.result(30)

    run(main())


def test_a_cancelled_call_never_starts(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("t")
    async def t() -> None:
        nonlocal ran
        ran += 1

    async def main() -> None:
        handle = await t.later(delay=5).call()
        assert await handle.cancel()
        await world.work()
        assert ran == 0
        with pytest.raises(TaskFailed, match="cancelled"):
            await handle.result(1)

    run(main())


def test_a_running_call_is_cancelled_within_a_beat(world: World, run: Go) -> None:
    stopped = asyncio.Event()

    @world.registry.task("long")
    async def long() -> None:
        try:
            await asyncio.sleep(500)
        finally:
            stopped.set()

    async def main() -> None:
        handle = await long.call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(1)
        assert await handle.cancel()
        async with asyncio.timeout(20):
            await stopped.wait()
            await working
        assert (await handle.status()).state is State.CANCELLED
        assert not world.line.waiting

    run(main())


def test_a_delivery_that_meets_a_live_run_comes_later_and_starts_nothing(world: World, run: Go) -> None:
    ran = most = 0

    @world.registry.task("slow")
    async def slow() -> None:
        nonlocal ran, most
        ran += 1
        most = max(most, ran)
        await asyncio.sleep(300)

    async def main() -> None:
        await slow.call()
        delivery = world.line.waiting[0][2]
        first, second = world.runner("w1"), world.runner("w2")
        working = asyncio.ensure_future(first.run(delivery))
        for _ in range(10):
            await asyncio.sleep(20)
            again = await second.run(delivery)
            assert again is not None
            assert again.at > world.clock.now()
        assert await working is None
        assert await second.run(delivery) is None
        assert ran == 1

    run(main())


def test_a_late_copy_of_an_earlier_call_of_the_same_name_starts_nothing(world: World, run: Go) -> None:
    ran: list[int] = []

    @world.registry.task("work", keep=0)
    async def work(number: int) -> None:
        ran.append(number)

    async def main() -> None:
        await work.later(name="n").call(1)
        late = world.line.waiting[0][2]
        await world.work()
        await asyncio.sleep(3_601)  # the record of the first is gone
        handle = await work.later(name="n", delay=600).call(2)
        assert await world.runner().run(late) is None
        assert (ran, (await handle.status()).state) == ([1], State.QUEUED)
        await world.work()
        assert ran == [1, 2]

    run(main())


def test_a_run_whose_worker_died_is_rescued_and_the_zombie_writes_nothing(world: World, run: Go) -> None:
    from tally.testing.process import Process

    @world.registry.task("work")
    async def work() -> str:
        await asyncio.sleep(10)
        return current().worker

    async def main() -> None:
        handle = await work.call()
        delivery = world.line.waiting[0][2]
        frozen = Process("w1")
        zombie = frozen.spawn(world.runner("w1").run(delivery))
        await asyncio.sleep(1)
        frozen.freeze()
        await asyncio.sleep(61)
        assert await world.runner("w2").run(delivery) is None
        assert await handle.result(1) == "w2"
        asyncio.get_running_loop().thaw(frozen)  # type: ignore[attr-defined]  # the virtual loop's
        await zombie
        status = await handle.status()
        assert await handle.result(1) == "w2"
        assert [(attempt.worker, attempt.outcome) for attempt in status.attempts] == [("w1", "lost"), ("w2", "done")]

    run(main())


def test_a_shutdown_gives_the_run_back_at_once_and_does_not_count_it(world: World, run: Go) -> None:
    @world.registry.task("work", retry=RetryPolicy(max_attempts=1))
    async def work() -> str:
        await asyncio.sleep(10)
        return current().worker

    async def main() -> None:
        handle = await work.call()
        delivery = world.line.waiting[0][2]
        working = asyncio.ensure_future(world.runner("w1").run(delivery))
        await asyncio.sleep(1)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert (await handle.status()).state is State.WAITING
        await world.runner("w2").run(replace(delivery, hop=1))
        assert await handle.result(1) == "w2"

    run(main())


def test_the_context_tells_what_a_task_may_know(world: World, run: Go) -> None:
    seen: list[Context] = []

    @world.registry.task("c", queue="q", timeout=50)
    async def c(x: int) -> float:
        seen.append(current())
        await asyncio.sleep(20)
        return current().left()

    async def main() -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        handle = await c.later(headers={"traceparent": trace}).call(4)
        await world.work()
        assert await handle.result(1) == pytest.approx(30)
        context = seen[0]
        assert (context.name, context.attempt, context.queue, context.worker) == ("c", 1, "q", "w1")
        assert (context.trace, context.arguments, context.id) == (trace, {"x": 4}, handle.id)

    run(main())


def test_there_is_no_context_outside_a_task() -> None:
    with pytest.raises(InvalidInput, match="no task runs here"):
        current()


def test_progress_is_seen_while_the_task_runs(world: World, run: Go) -> None:
    @world.registry.task("p")
    async def p() -> None:
        for done in range(10):
            progress({"done": done})
            await asyncio.sleep(10)

    async def main() -> None:
        handle = await p.call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(55)
        assert bytes((await handle.status()).progress) == b'{"done":5}'
        await working
        assert bytes((await handle.status()).progress) == b'{"done":9}'

    run(main())


def test_progress_has_a_limit(world: World, run: Go) -> None:
    @world.registry.task("p", retry=RetryPolicy(max_attempts=1))
    async def p() -> None:
        progress("x" * 4_000)

    async def main() -> None:
        handle = await p.call()
        await world.work()
        assert "4000" in (await handle.status()).error

    run(main())


def test_middleware_sees_every_run_and_cannot_break_it(world: World, run: Go) -> None:
    log: list[str] = []

    class Log(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def before(self, context: Context) -> None:
            log.append(f"{self.name} before {context.name}")

        def after(self, context: Context, result: Any) -> None:
            log.append(f"{self.name} after {result}")
            raise RuntimeError("ignored")

        def on_error(self, context: Context, error: BaseException) -> None:
            log.append(f"{self.name} error {error!r}")

    world.registry.use(Log("a"))
    world.registry.use(Log("b"))

    @world.registry.task("ok")
    async def ok() -> int:
        return 1

    @world.registry.task("bad", retry=RetryPolicy(max_attempts=1))
    async def bad() -> None:
        raise ValueError("x")

    async def main() -> None:
        handle = await ok.call()
        await bad.call()
        await world.work()
        assert await handle.result(1) == 1

    run(main())
    assert log == [
        "a before ok",
        "b before ok",
        "b after 1",
        "a after 1",
        "a before bad",
        "b before bad",
        "b error ValueError('x')",
        "a error ValueError('x')",
    ]


def test_an_expired_call_is_parked_and_does_not_run(world: World, run: Go) -> None:
    ran = 0

    @world.registry.task("t")
    async def t() -> None:
        nonlocal ran
        ran += 1

    async def main() -> None:
        handle = await t.later(expires=10).call()
        await asyncio.sleep(11)
        await world.work()
        assert ran == 0
        assert (await handle.status()).state is State.FAILED
        assert await world.parked() == [("t", "expired")]

    run(main())


@pytest.mark.parametrize(("keep", "gone"), [(0, 3_600), (7_200, 7_200), (None, None)])
def test_a_record_lives_as_long_as_it_is_kept(world: World, run: Go, keep: float | None, gone: int | None) -> None:
    @world.registry.task("t", keep=keep)
    async def t() -> int:
        return 1

    async def main() -> None:
        handle = await t.call()
        await world.work()
        await asyncio.sleep(10**9 if gone is None else gone - 1)
        assert await handle.result(1) == 1
        assert await world.tasks.runs.sweep() == 0
        if gone is not None:
            await asyncio.sleep(1)
            with pytest.raises(NotFound):
                await handle.result(1)
            assert await world.tasks.runs.sweep() == 1
            assert not world.store.entities

    run(main())


def test_what_a_large_run_left_goes_after_its_record(world: World, run: Go) -> None:
    @world.registry.task("t", keep=3_600)
    async def t(text: str) -> str:
        return text

    async def main() -> None:
        await t.call("x" * 300_000)
        await world.work()
        await asyncio.sleep(4 * 3_600)
        assert await world.tasks.runs.sweep() == 2, "the record and its result"
        assert await world.tasks.runs.sweep() == 0
        await asyncio.sleep(63 * 86_400)
        assert await world.tasks.runs.sweep() == 1, "the arguments, once no delivery can ask for them"
        assert not world.store.entities

    run(main())


def test_a_task_forgotten_while_it_runs_ends_quietly(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t() -> None:
        await asyncio.sleep(5)

    async def main() -> None:
        handle = await t.call()
        working = asyncio.ensure_future(world.work())
        await asyncio.sleep(1)
        await handle.forget()
        await working
        with pytest.raises(NotFound):
            await handle.status()

    run(main())


def test_jobs_of_a_stopped_pool_that_are_registered_tasks_go_back_to_their_queue(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t(x: int) -> int:
        return x

    async def main() -> None:
        pool = WorkerPool(1)
        pool.pause()
        pool.submit(t, 5)
        pool.submit(str, 6)
        rest = await hand_back(await pool.stop())
        assert [job.function for job in rest] == [str]
        assert len(world.line.waiting) == 1
        payload = world.line.waiting[0][2].payload
        assert calls.decode(payload).call == "t"
        await world.work()

    run(main())
