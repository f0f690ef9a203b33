"""Task queues without an event loop: calls from plain code and from many threads, and the ends of it."""

import asyncio
import os
import re
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tally.errors import ConfigError, InvalidInput, TaskFailed
from tally.sync import TaskQueues
from tally.tasks import deferred
from tally.tasks.context import current
from tally.tasks.pace import Bounds
from tally.tasks.run import State
from tally.tasks.task import Task

README = Path(deferred.__file__).with_name("README.md")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path), "TALLY_DURABILITY": "process-crash"}


@pytest.fixture
def queues(environ: dict[str, str]) -> Iterator[TaskQueues]:
    with TaskQueues(environ) as queues:
        yield queues


@pytest.fixture(autouse=True)
def functions() -> Iterator[None]:
    """Forget what a test registers."""
    before = dict(deferred.registry.functions)
    yield
    deferred.registry.functions.clear()
    deferred.registry.functions.update(before)


async def work(queues: TaskQueues) -> None:
    """Run what is in the queue, on the loop of the queues."""
    executor = queues.system.executor({"default": 1}, bounds=Bounds(at_least=4, at_most=4))
    await executor.run(asyncio.Event(), until_empty=True)


def test_a_call_is_made_run_and_waited_for_from_plain_code(queues: TaskQueues) -> None:
    @deferred.task("double")
    def double(number: int) -> int:
        return 2 * number

    handle = queues.run(double.call(21))
    assert queues.run(handle.status()).state is State.QUEUED
    queues.run(work(queues))
    assert queues.run(handle.result(timeout=5)) == 42


def test_what_a_call_raises_is_raised_here(queues: TaskQueues) -> None:
    @deferred.task("bad", fatal=(ValueError,))
    async def bad(number: int) -> None:
        raise ValueError(number)

    with pytest.raises(InvalidInput, match="number"):
        queues.run(bad.call("x"))  # type: ignore[arg-type]  # the point
    handle = queues.run(bad.call(1))
    queues.run(work(queues))
    with pytest.raises(TaskFailed):
        queues.run(handle.result(timeout=5))


def test_many_threads_share_it(queues: TaskQueues) -> None:
    mail = queues.system.pull("mail")
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda n: queues.run(mail.add(Task(name=f"t{n}"))), range(40)))
    assert {outcome.status for outcome in outcomes} == {"added"}
    assert queues.run(mail.stats()).tasks == 40


def test_a_plain_task_function_makes_calls_on_the_workers_loop(queues: TaskQueues) -> None:
    made: list[str] = []

    @deferred.task("child", queue="children")
    async def child() -> None: ...

    @deferred.task("parent")
    def parent() -> str:
        made.append(current().run(child.call()).id)
        return made[0]

    @deferred.task("async-parent", fatal=(InvalidInput,))
    async def async_parent() -> None:
        current().run(child.call())

    handle, wrong = queues.run(parent.call()), queues.run(async_parent.call())
    queues.run(work(queues))
    assert queues.run(handle.result(timeout=5)) == made[0]
    assert queues.run(queues.system.pull("children").stats()).tasks == 1
    with pytest.raises(TaskFailed, match="no plain function"):
        queues.run(wrong.result(timeout=5))


async def test_where_a_loop_runs_the_call_is_to_be_awaited(environ: dict[str, str]) -> None:
    with TaskQueues(environ) as queues, pytest.raises(ConfigError, match="await the call"):
        queues.run(queues.system.pull("mail").stats())


def test_a_coroutine_that_it_runs_cannot_wait_for_another_one_in_its_thread(queues: TaskQueues) -> None:
    async def inner() -> int:
        return queues.run(queues.system.pull("mail").stats()).tasks  # it would wait for itself

    with pytest.raises(ConfigError, match="await the call"):
        queues.run(inner())
    assert queues.run(queues.system.pull("mail").stats()).tasks == 0


class Odd(BaseException): ...


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), InvalidInput("i"), TimeoutError("t"), Odd(), StopIteration(), SystemExit(3), KeyboardInterrupt()],
)
def test_whatever_a_coroutine_raises_passes_and_harms_no_other_call(queues: TaskQueues, error: BaseException) -> None:
    async def raises() -> None:
        await asyncio.sleep(0)
        raise error

    async def other() -> int:
        begun.set()
        await asyncio.sleep(0.05)
        return 7

    begun = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        beside = threads.submit(queues.run, other())
        assert begun.wait(5)
        with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)) as caught:
            queues.run(raises())
        assert isinstance(error, StopIteration) or caught.value.args == error.args
        assert beside.result(5) == 7
    assert queues.run(other()) == 7


def test_calls_of_many_threads_that_meet_a_close_end_and_are_told_so(environ: dict[str, str]) -> None:
    queues = TaskQueues(environ)
    begun = threading.Barrier(9)

    def call(number: int) -> str:
        begun.wait(5)
        for _ in range(200):
            try:
                queues.run(asyncio.sleep(0))
            except (ConfigError, CancelledError) as error:
                return type(error).__name__
        return "never closed"

    def close() -> None:
        begun.wait(5)
        queues.close()

    with ThreadPoolExecutor(9) as threads:
        calls = [threads.submit(call, number) for number in range(7)]
        closes = [threads.submit(close) for _ in range(2)]
        assert {each.result(20) for each in calls} <= {"ConfigError", "CancelledError"}
        assert [each.result(20) for each in closes] == [None, None]
    assert deferred.registry.connected is None


def test_a_timeout_ends_the_wait_and_the_call(queues: TaskQueues) -> None:
    ended = threading.Event()

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        queues.run(long(), timeout=0.01)
    assert ended.wait(5)


def test_a_close_cancels_what_is_still_under_way_and_is_final(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.sync.GRACE", 0.01)
    queues = TaskQueues(environ)
    begun = threading.Event()

    async def long() -> None:
        begun.set()
        await asyncio.sleep(60)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queues.run, long())
        assert begun.wait(5)
        queues.close()
        with pytest.raises(CancelledError):
            waiting.result(5)
    queues.close()
    with pytest.raises(ConfigError, match="closed"):
        queues.run(asyncio.sleep(0))
    assert deferred.registry.connected is None


def test_a_second_one_is_refused_for_it_would_take_the_first_ones_calls(
    queues: TaskQueues, environ: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match="open already"):
        TaskQueues(environ)


def test_a_fork_must_open_its_own(queues: TaskQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread with the loop is not in the child: a call would wait for ever."""
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(ConfigError, match="after the fork"):
        queues.run(asyncio.sleep(0))
    queues.close()  # does nothing: it is the parent's
    monkeypatch.undo()
    queues.run(asyncio.sleep(0))


class _Held:
    """A lock that its holder will never let go."""

    def __enter__(self) -> None:
        raise AssertionError("it would wait for ever")

    def __exit__(self, *_: object) -> None: ...


def test_a_fork_that_copied_the_lock_while_it_was_held_does_not_hang(
    queues: TaskQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as forked:
        forked.setattr("os.getpid", lambda: -1)
        forked.setattr(queues, "_lock", _Held())
        with pytest.raises(ConfigError, match="forked"):
            queues.run(work(queues))
        queues.close()


def test_settings_that_are_wrong_are_said_where_it_is_opened(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="TALLY_TASK_MODULES"):
        TaskQueues({**environ, "TALLY_TASK_MODULES": "no.such.module"})
    assert deferred.registry.connected is None


def test_the_readmes_example_runs(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there; a worker is at it as soon as the result is waited for."""
    found = re.search(
        r"<!-- runs as a test: sync -->\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None

    @deferred.task("receipt")
    async def send_receipt(order: int, to: list[str]) -> int:
        return order + len(to)

    class Worked(TaskQueues):
        def __init__(self) -> None:
            super().__init__(environ)

        def run(self, call: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
            if call.cr_code.co_name == "result":  # type: ignore[attr-defined]  # every coroutine of a function has it
                super().run(work(self))
            return super().run(call, timeout)

    monkeypatch.setattr("tally.sync.TaskQueues", Worked)
    names: dict[str, Any] = {"send_receipt": send_receipt}
    exec(found[1], names)
    assert names["sent"] == 8
