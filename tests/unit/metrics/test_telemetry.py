"""What `/metrics` says: of runs, of queues, of votes, of calls and of the log; and that its table is true."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tally import logs
from tally.errors import Unavailable
from tally.metrics import instruments
from tally.metrics.exposition import Exposition
from tally.metrics.ports import TimedStore
from tally.metrics.telemetry import Telemetry
from tally.ports import Backend
from tally.retry import RetryPolicy
from tally.tasks.deferred import Registry
from tally.tasks.pace import Bounds
from tally.tasks.system import TaskSystem
from tally.tasks.task import Task
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.votes.batch import Vote
from tally.votes.microbatch import MicroBatcher
from tally.votes.worker import Worker

Go = Callable[[Coroutine[Any, Any, Any]], Any]
README = Path(instruments.__file__).with_name("README.md")


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.close()


@pytest.fixture
def run(tally_loop: VirtualLoop) -> Go:
    return tally_loop.run


class Samples:
    """The samples of a Prometheus text, by name and labels."""

    def __init__(self, text: bytes) -> None:
        self.families = list(text_string_to_metric_families(text.decode()))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float | None:
        found = [sample.value for sample in self.samples if sample.name == name and sample.labels == labels]
        assert len(found) <= 1
        return found[0] if found else None


class Tasks:
    """A worker on the queue `q`, watched."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self.clock = VirtualClock()
        self.registry = Registry()
        self.backend = FakeBackend(clock=self.clock)
        self.system = TaskSystem(self.registry, self.backend.store, clock=self.clock, random=Random(1))
        self.registry.connect(self.system.tasks)
        telemetry.watch_tasks(self.registry, {"q"})

    async def work(self, seconds: float) -> Samples:
        executor = self.system.executor({"q": 1}, bounds=Bounds(at_least=2, at_most=2))
        self.telemetry.watch_queues(executor, self.clock)
        stop = asyncio.Event()
        working = asyncio.ensure_future(executor.run(stop))
        await asyncio.sleep(seconds)
        samples = Samples(self.telemetry.text())
        stop.set()
        await working
        return samples


def test_runs_are_counted_by_outcome_and_timed(telemetry: Telemetry, run: Go) -> None:
    world = Tasks(telemetry)

    @world.registry.task("t", queue="q", retry=RetryPolicy(max_attempts=2, min_backoff=1.0))
    async def t(good: bool) -> None:
        await asyncio.sleep(3)
        if not good:
            raise ValueError

    async def main() -> Samples:
        await t.call(True)
        await t.call(False)
        return await world.work(60)

    samples = run(main())
    of = {"queue": "q", "task": "t"}
    for outcome in ("succeeded", "retried", "failed"):
        assert samples.value("tally_task_attempts_total", **of, outcome=outcome) == 1
    assert samples.value("tally_task_dead_letters_total", **of, reason="exhausted") == 1
    assert samples.value("tally_task_run_seconds_count", **of) == 3
    assert 9 <= (samples.value("tally_task_run_seconds_sum", **of) or 0) < 10
    assert samples.value("tally_task_wait_seconds_count", **of) == 3
    assert samples.value("tally_task_wait_seconds_bucket", **of, le="5.0") == 3


def test_names_that_callers_choose_make_no_series(telemetry: Telemetry, run: Go) -> None:
    """A call of a function that nobody has, through a queue's HTTP interface say, may be called anything."""
    world = Tasks(telemetry)

    async def main() -> Samples:
        await world.system.pull("q").add(Task.json({"v": 1, "call": "made-up-by-a-caller"}))
        return await world.work(60)

    samples = run(main())
    assert samples.value("tally_task_attempts_total", queue="q", task="other", outcome="retried")
    assert "made-up" not in str(samples.samples)


def test_a_queue_shows_its_depth_its_age_and_what_is_in_flight(telemetry: Telemetry, run: Go) -> None:
    world = Tasks(telemetry)

    @world.registry.task("t", queue="q")
    async def t() -> None:
        await asyncio.sleep(1_000)

    async def main() -> Samples:
        for _ in range(5):
            await t.call()
        await asyncio.sleep(100)
        return await world.work(20)

    samples = run(main())
    assert samples.value("tally_queue_tasks", queue="q") == 5
    assert samples.value("tally_queue_in_flight", queue="q") == 2
    assert samples.value("tally_queue_dead_letters", queue="q") == 0
    assert samples.value("tally_queue_paused", queue="q") == 0
    assert 110 <= (samples.value("tally_queue_oldest_age_seconds", queue="q") or 0) <= 125
    assert samples.value("tally_worker_tasks") == 2
    assert samples.value("tally_worker_tasks_limit") == 2


def vote_worker(ports: Backend) -> Worker:
    return Worker(
        ports.store,
        ports.puller("votes"),
        ports.publisher,
        dead_letter_topic="votes-dead",
        clock=VirtualClock(),
        random=Random(1),
    )


def test_the_worker_shows_its_state_and_each_call_its_time(telemetry: Telemetry, run: Go) -> None:
    async def main() -> Samples:
        backend = FakeBackend()
        await backend.prepare()
        worker = vote_worker(telemetry.timed(backend))
        telemetry.watch_worker(worker)
        stop = asyncio.Event()
        working = asyncio.ensure_future(worker.run(stop))
        await asyncio.sleep(3)
        samples = Samples(telemetry.text())
        stop.set()
        await working
        return samples

    samples = run(main())
    assert samples.value("tally_worker_healthy") == 1
    assert samples.value("tally_votes_messages_held") == 0
    assert samples.value("tally_votes_settled_total") == 0
    assert (samples.value("tally_calls_seconds_count", port="store", operation="commit", outcome="refused") or 0) > 0
    assert (samples.value("tally_calls_seconds_count", port="store", operation="get", outcome="ok") or 0) > 0


def test_accepted_votes_are_counted_once_they_are_durable(telemetry: Telemetry, run: Go) -> None:
    async def main() -> Samples:
        backend = FakeBackend()
        await backend.prepare()
        batcher = MicroBatcher(backend.publisher, VirtualClock(), Random(1))
        telemetry.watch_intake(batcher)
        waiting = batcher.add("votes", [Vote("p", "o", bytes(16), VirtualClock().now())] * 3)
        assert Samples(telemetry.text()).value("tally_votes_accepted_total") == 0
        await waiting
        return Samples(telemetry.text())

    assert run(main()).value("tally_votes_accepted_total") == 3


def test_the_log_is_counted_by_action_and_severity(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "tally"):
        logs.event("lane-parked", level=logging.ERROR, poll="secret-poll")
    samples = Samples(telemetry.text())
    assert samples.value("tally_events_total", action="lane-parked", severity="ERROR") == 1
    assert "secret-poll" not in str(samples.samples)


def test_votes_that_the_worker_refuses_are_counted_by_reason(
    telemetry: Telemetry, run: Go, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Samples:
        backend = FakeBackend()
        await backend.prepare()
        batcher = MicroBatcher(backend.publisher, VirtualClock(), Random(1))
        ballots = [bytes([number] * 16) for number in range(7)]
        await batcher.add("votes", [Vote("secret-poll", "o", ballot, VirtualClock().now()) for ballot in ballots])
        stop = asyncio.Event()
        working = asyncio.ensure_future(vote_worker(backend).run(stop))
        await asyncio.sleep(3)
        stop.set()
        await working
        return Samples(telemetry.text())

    with caplog.at_level("INFO", "tally"):
        samples = run(main())
    assert samples.value("tally_votes_refused_total", reason="unknown-poll") == 7
    assert "secret-poll" not in str(samples.samples)


def test_a_closed_telemetry_counts_the_log_no_more(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    telemetry.close()
    with caplog.at_level("INFO", "tally"):
        logs.event("lane-parked")
    assert b"lane-parked" not in telemetry.text()


class Down:
    async def get(self, keys: Any) -> Any:
        raise Unavailable("down")

    async def commit(self, writes: Any) -> Any:
        await asyncio.sleep(10)

    async def query(self, query: Any) -> Any:
        raise ZeroDivisionError


def test_a_call_is_timed_by_what_came_of_it(run: Go) -> None:
    exposed = Exposition()
    store = TimedStore(Down(), instruments.histogram(exposed.meter, "tally.calls", instruments.SHORT))

    async def main() -> None:
        with pytest.raises(Unavailable):
            await store.get([])
        with pytest.raises(ZeroDivisionError):
            await store.query(None)  # type: ignore[arg-type]  # nobody looks at it
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await store.commit([])

    run(main())
    samples = Samples(exposed.text())
    for operation, outcome in (("get", "unavailable"), ("query", "bug"), ("commit", "cancelled")):
        count = samples.value("tally_calls_seconds_count", port="store", operation=operation, outcome=outcome)
        assert count == 1, operation


def test_the_readme_shows_the_table() -> None:
    rows = [
        f"| `{metric.prometheus}` | {metric.kind} | {', '.join(metric.labels) or '-'} | {metric.meaning} |"
        for metric in instruments.TABLE
    ]
    shown = re.findall(r"^\| `tally_.*\|$", README.read_text(), re.MULTILINE)
    assert shown == rows
