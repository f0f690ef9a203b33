"""The worker pool, a test a verb."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from tally.errors import Busy, Conflict, InvalidInput
from tally.tasks.pool import WorkerPool, worker_state


async def turn() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def held(gate: asyncio.Event, log: list[Any], result: Any = None) -> Callable[[], Any]:
    async def job() -> Any:
        log.append(result)
        await gate.wait()
        return result

    return job


async def test_submit_returns_a_future_of_an_async_result() -> None:
    pool = WorkerPool(1)

    async def double(number: int, *, plus: int) -> int:
        return 2 * number + plus

    assert await pool.submit(double, 20, plus=2) == 42
    await pool.drain()


async def test_submit_runs_a_plain_function_in_a_thread() -> None:
    pool = WorkerPool(1)
    assert await pool.submit(threading.get_ident) != threading.get_ident()
    await pool.drain()


async def test_submit_refuses_at_once_when_the_queue_is_full() -> None:
    gate, log = asyncio.Event(), list[Any]()
    pool = WorkerPool(1, queue=2)
    jobs = [pool.submit(held(gate, log))]
    await turn()
    jobs += [pool.submit(held(gate, log)) for _ in range(2)]
    with pytest.raises(Busy, match="2 jobs"):
        pool.submit(held(gate, log))
    gate.set()
    await asyncio.gather(*jobs)
    await pool.drain()


async def test_submit_wait_waits_for_room_and_returns_the_result() -> None:
    gate, log = asyncio.Event(), list[Any]()
    pool = WorkerPool(1, queue=1)
    first = pool.submit(held(gate, log, "first"))
    await turn()
    pool.submit(held(gate, log, "second"))
    third = asyncio.ensure_future(pool.submit_wait(held(gate, log, "third")))
    await turn()
    assert not third.done()
    gate.set()
    assert await third == "third"
    assert await first == "first"
    await pool.drain()


async def test_a_pool_never_runs_more_jobs_than_its_size() -> None:
    now = most = 0
    pool = WorkerPool(3)

    async def job() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    await asyncio.gather(*[pool.submit(job) for _ in range(50)])
    assert most == 3
    await pool.drain()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_capture_gives_the_exception_to_the_caller_and_keeps_the_worker(error: BaseException, kind: str) -> None:
    pool = WorkerPool(1)

    async def fail_async() -> None:
        raise error

    def fail() -> None:
        raise error

    future = pool.submit(fail_async if kind == "async" else fail)
    await asyncio.wait([future])
    assert future.exception() is error
    assert await pool.submit(str, 5) == "5"
    assert pool.stats().failed == 1
    await pool.drain()


async def test_a_job_that_raises_stop_iteration_fails_with_a_runtime_error() -> None:
    pool = WorkerPool(1)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.submit(next, iter(()))
    await pool.drain()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_sees_the_context_of_its_submitter(kind: str) -> None:
    who: ContextVar[str] = ContextVar("who")
    pool = WorkerPool(1)

    async def ask() -> str:
        return who.get()

    for name in ("first", "second"):
        who.set(name)
        assert await pool.submit(ask if kind == "async" else who.get) == name
    await pool.drain()


async def test_timeout_cancels_an_async_job() -> None:
    pool, cancelled = WorkerPool(1, timeout=0.01), asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError, match=r"0\.01 s"):
        await pool.submit(endless)
    await cancelled.wait()
    await pool.drain()


async def test_timeout_of_a_thread_frees_the_caller_and_interrupts_the_function() -> None:
    stop = threading.Event()
    pool = WorkerPool(1, set_up=lambda: stop, interrupt=threading.Event.set)
    with pytest.raises(TimeoutError):
        await pool.submit_with(0.01, lambda: worker_state().wait(60))
    assert stop.is_set()
    assert await pool.submit(str, 1) == "1"
    await pool.drain()


async def test_cancelling_the_future_cancels_the_job_that_runs_and_skips_the_one_that_waits() -> None:
    gate, log = asyncio.Event(), list[Any]()
    pool = WorkerPool(1)
    running = pool.submit(held(gate, log, "running"))
    waiting = pool.submit(held(gate, log, "waiting"))
    await turn()
    running.cancel()
    waiting.cancel()
    await pool.drain()
    assert log == ["running"]


async def test_resize_up_starts_waiting_jobs_at_once_and_down_lets_workers_go() -> None:
    gate, log = asyncio.Event(), list[Any]()
    pool = WorkerPool(1, idle=60)
    jobs = [pool.submit(held(gate, log)) for _ in range(4)]
    await turn()
    assert pool.stats().running == 1
    pool.resize(3)
    await turn()
    assert pool.stats().running == 3
    pool.resize(1)
    gate.set()
    await asyncio.gather(*jobs)
    await turn()
    assert pool.stats().workers == 1
    await pool.drain()


async def test_pause_starts_nothing_and_resume_goes_on() -> None:
    pool = WorkerPool(2)
    pool.pause()
    job = pool.submit(str, 1)
    await turn()
    assert pool.stats().queued == 1
    pool.resume()
    assert await job == "1"
    await pool.drain()


async def test_stop_drops_waiting_jobs_returns_them_and_finishes_the_running_one() -> None:
    gate, log = asyncio.Event(), list[Any]()
    pool = WorkerPool(1)
    running = pool.submit(held(gate, log, "running"))
    waiting = pool.submit(held(gate, log, "waiting"))
    await turn()
    stopping = asyncio.ensure_future(pool.stop())
    await turn()
    gate.set()
    dropped = await stopping
    assert [job.future for job in dropped] == [waiting]
    assert await running == "running"
    with pytest.raises(Conflict, match="stopped before"):
        await waiting
    with pytest.raises(Conflict):
        pool.submit(str, 1)


async def test_stop_with_a_grace_cancels_async_jobs_and_leaves_threads_behind() -> None:
    release = threading.Event()
    pool = WorkerPool(2)
    endless = pool.submit(asyncio.Event().wait)
    stuck = pool.submit(release.wait, 60)
    await turn()
    await pool.stop(grace=0.01)
    assert endless.cancelled()
    assert stuck.cancelled()
    release.set()


async def test_drain_finishes_what_waits_even_in_a_pause() -> None:
    pool = WorkerPool(2)
    pool.pause()
    jobs = [pool.submit(str, number) for number in range(20)]
    await pool.drain()
    assert [job.result() for job in jobs] == [str(number) for number in range(20)]
    assert pool.stats().workers == 0


async def test_set_up_and_tear_down_run_once_a_worker_in_its_thread() -> None:
    made: list[int] = []
    gone: list[int] = []

    def set_up() -> int:
        made.append(threading.get_ident())
        return made[-1]

    pool = WorkerPool(2, set_up=set_up, tear_down=gone.append)
    used = [await pool.submit(lambda: (worker_state(), threading.get_ident())) for _ in range(6)]
    assert all(state == thread for state, thread in used)
    await pool.drain()
    assert sorted(made) == sorted(gone)
    assert len(made) == 1


async def test_a_failing_set_up_fails_the_job_and_not_the_pool() -> None:
    tries = 0

    def set_up() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError("not yet")

    pool = WorkerPool(1, set_up=set_up)
    with pytest.raises(ConnectionError):
        await pool.submit(str, 1)
    assert await pool.submit(str, 2) == "2"
    await pool.drain()


async def test_idle_workers_leave_down_to_the_number_to_keep() -> None:
    pool = WorkerPool(4, idle=0.01, keep=1)
    gate, log = asyncio.Event(), list[Any]()
    jobs = [pool.submit(held(gate, log)) for _ in range(4)]
    await turn()
    assert pool.stats().workers == 4
    gate.set()
    await asyncio.gather(*jobs)
    for _ in range(1_000):
        if pool.stats().workers == 1:
            break
        await asyncio.sleep(0.005)
    assert pool.stats().workers == 1
    assert await pool.submit(str, 1) == "1"
    await pool.drain()


async def test_pace_spaces_the_starts() -> None:
    loop, starts = asyncio.get_running_loop(), list[float]()
    pool = WorkerPool(4, pace=0.02)

    async def job() -> None:
        starts.append(loop.time())

    await asyncio.gather(*[pool.submit(job) for _ in range(4)])
    assert all(later - earlier >= 0.019 for earlier, later in itertools.pairwise(starts))
    await pool.drain()


async def test_stats_count_what_waits_runs_and_ended() -> None:
    gate, log = asyncio.Event(), list[Any]()
    pool = WorkerPool(1)
    jobs = [pool.submit(held(gate, log)) for _ in range(3)]
    await turn()
    stats = pool.stats()
    assert (stats.queued, stats.running, stats.workers, stats.done, stats.failed) == (2, 1, 1, 0, 0)
    gate.set()
    await asyncio.gather(*jobs)
    await pool.drain()
    stats = pool.stats()
    assert (stats.queued, stats.running, stats.workers, stats.done, stats.failed) == (0, 0, 0, 3, 0)
    assert 0 <= stats.p50 <= stats.p95


@pytest.mark.parametrize(("size", "queue"), [(0, 1), (1_001, 1), (1, 0), (1, 1_000_001)])
async def test_a_size_past_its_limit_is_refused(size: int, queue: int) -> None:
    with pytest.raises(InvalidInput, match="want 1 to"):
        WorkerPool(size, queue=queue)


async def test_a_thousand_jobs_at_the_limits_end() -> None:
    pool = WorkerPool(1_000, queue=1_000)
    assert len(await asyncio.gather(*[pool.submit(asyncio.sleep, 0) for _ in range(1_000)])) == 1_000
    await pool.drain()
