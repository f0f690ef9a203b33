"""A worker pool inside one process: bounded, resizable, observable. What it holds does not survive the process.

Each worker takes one job at a time. An async function runs on the event loop; any other runs in the worker's own
thread, the same one for all its jobs and for its set-up and tear-down. Two verbs end a pool: `stop` drops the jobs not
yet started and hands them to the caller, `drain` finishes them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any

from tally.errors import Busy, Conflict, InvalidInput
from tally.limits import POOL_JOBS, POOL_WORKERS
from tally.tasks.pool_worker import Outcome, Worker, at_work, cancel, ended, outcome_of

_SAMPLES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """`done` and `failed` count ended jobs; `p50` and `p95` are seconds over the last 1,000 of them, 0 before any."""

    queued: int
    running: int
    workers: int
    done: int
    failed: int
    p50: float
    p95: float


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """One call, waiting or running. `future` gets its result or its exception."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    timeout: float | None
    context: Context
    future: "asyncio.Future[Any]"


def worker_state() -> Any:
    """Return what `set_up` made for the worker that runs this job."""
    return at_work.get().state


class WorkerPool:
    """Run jobs on at most `size` workers; at most `queue` wait. Belongs to the event loop that first uses it.

    Workers start on demand and leave after `idle` seconds without work, down to `keep`. `pace` spaces the starts of
    jobs by that many seconds. `timeout` is the default of each job. `set_up` runs once a worker, before its first job,
    `tear_down` gets its result at the end; `interrupt` gets it when a job of the worker's thread overruns (a thread
    cannot be killed: the caller has the TimeoutError, the worker stays taken until the function returns).
    """

    def __init__(
        self,
        size: int,
        *,
        queue: int = 1_000,
        timeout: float | None = None,
        idle: float = 2.0,
        keep: int = 0,
        pace: float = 0.0,
        set_up: Callable[[], Any] | None = None,
        tear_down: Callable[[Any], Any] | None = None,
        interrupt: Callable[[Any], None] | None = None,
    ) -> None:
        self._size = _within("size", size, POOL_WORKERS)
        self._limit = _within("queue", queue, POOL_JOBS)
        self._timeout = timeout
        self._idle = idle
        self._keep = keep
        self._pace = pace
        self._set_up = set_up
        self._tear_down = tear_down
        self._interrupt = interrupt
        self._jobs: deque[Job] = deque()
        self._workers: dict[Worker, asyncio.Task[None]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._room: deque[asyncio.Future[None]] = deque()
        self._paused = False
        self._closed = False
        self._next_start = 0.0
        self._running = 0
        self._done = 0
        self._failed = 0
        self._seconds: deque[float] = deque(maxlen=_SAMPLES)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        """Queue a call and return the future of its result; cancelling the future cancels the job.

        The job sees the context variables of the caller.

        Raises Busy when the queue is full, Conflict when the pool is stopped.
        """
        return self.submit_with(self._timeout, function, *args, **kwargs)

    def submit_with(
        self, timeout: float | None, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "asyncio.Future[Any]":
        """As `submit`, with a time limit of its own, in seconds from the job's start."""
        self._check_open()
        if len(self._jobs) >= self._limit:
            raise Busy(f"the pool's queue is full ({self._limit} jobs)", retry_after=1.0, code="pool-full")
        future = asyncio.get_running_loop().create_future()
        job = Job(function=function, args=args, kwargs=kwargs, timeout=timeout, context=copy_context(), future=future)
        self._jobs.append(job)
        self._call_a_worker()
        return future

    async def submit_wait(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Wait for room in the queue, run the call, and return its result or raise its exception."""
        while len(self._jobs) >= self._limit and not self._closed:
            await _wait_in(self._room)
        return await self.submit(function, *args, **kwargs)

    def resize(self, size: int) -> None:
        """Change the number of workers at once; a worker too many leaves when its job is done."""
        self._size = _within("size", size, POOL_WORKERS)
        self._wake_all()

    def pause(self) -> None:
        """Start no more jobs; those that run go on."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._wake_all()

    async def stop(self, grace: float | None = None) -> list[Job]:
        """Drop the jobs not yet started, and return them, their futures failed; wait for those that run.

        After `grace` seconds async jobs are cancelled, and threads are left behind without a tear-down.
        """
        self._closed = True
        dropped = [job for job in self._jobs if not job.future.done()]
        self._jobs.clear()
        for job in dropped:
            job.future.set_exception(Conflict("the pool was stopped before the job started", code="pool-stopped"))
            job.future.exception()  # seen: a caller that dropped the future needs no log line
        await self._leave(grace)
        return dropped

    async def drain(self) -> None:
        """Take no more jobs, finish all that were taken (a pause ends), and let the workers go."""
        self._closed = True
        self.resume()
        await self._leave(None)

    def stats(self) -> PoolStats:
        seconds = sorted(self._seconds)
        return PoolStats(
            queued=len(self._jobs),
            running=self._running,
            workers=len(self._workers),
            done=self._done,
            failed=self._failed,
            p50=seconds[len(seconds) // 2] if seconds else 0.0,
            p95=seconds[len(seconds) * 95 // 100] if seconds else 0.0,
        )

    # Workers come and go

    def _check_open(self) -> None:
        if self._closed:
            raise Conflict("the pool is stopped", code="pool-stopped")

    def _call_a_worker(self) -> None:
        if not _wake_one(self._waiting) and len(self._workers) < self._size:
            worker = Worker()
            task = asyncio.get_running_loop().create_task(self._work(worker))
            self._workers[worker] = task

    def _wake_all(self) -> None:
        while _wake_one(self._waiting):
            pass
        for _ in range(min(len(self._jobs), self._size - len(self._workers))):
            self._call_a_worker()
        while self._closed and _wake_one(self._room):
            pass

    async def _leave(self, grace: float | None) -> None:
        self._wake_all()
        if self._workers:
            await asyncio.wait(list(self._workers.values()), timeout=grace)
        for worker, task in self._workers.items():
            if not cancel(worker.running):
                task.cancel()
        if self._workers:
            await asyncio.wait(list(self._workers.values()), timeout=grace)

    async def _work(self, worker: Worker) -> None:
        try:
            while (job := await self._next()) is not None:
                _wake_one(self._room)
                if job.future.done():
                    continue
                if not await self._prepare(worker, job):
                    break
                await self._run(worker, job)
        finally:
            self._workers.pop(worker)
            if worker.ready and worker.running is None and self._tear_down is not None:
                await worker.call(copy_context(), self._tear_down, (worker.state,), {})
            if worker.thread is not None:
                worker.thread.shutdown(wait=False)
            if self._jobs and not self._paused:
                self._call_a_worker()

    async def _next(self) -> Job | None:
        """Return the job to start now, or None when this worker shall leave."""
        loop = asyncio.get_running_loop()
        while True:
            if len(self._workers) > self._size or (self._closed and not self._jobs):
                return None
            if self._jobs and not self._paused:
                early = self._next_start - loop.time()
                if early <= 0:
                    self._next_start = loop.time() + self._pace
                    return self._jobs.popleft()
                await asyncio.sleep(early)
                continue
            try:
                async with asyncio.timeout(self._idle):
                    await _wait_in(self._waiting)
            except TimeoutError:
                if len(self._workers) > self._keep and not self._jobs:
                    return None

    # One job

    async def _prepare(self, worker: Worker, job: Job) -> bool:
        """Set the worker up before its first job; when that fails the job has the error, and the worker leaves."""
        if not worker.ready and self._set_up is not None:
            outcome = await worker.call(copy_context(), self._set_up, (), {})
            if outcome.error is not None:
                self._finish(job, outcome)
                return False
            worker.state = outcome.value
        worker.ready = True
        return True

    async def _run(self, worker: Worker, job: Job) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._running += 1
        running = worker.running = worker.call(job.context, job.function, job.args, job.kwargs)
        job.future.add_done_callback(lambda future: cancel(running) if future.cancelled() else None)
        try:
            if await ended(running, job.timeout):
                self._finish(job, outcome_of(running))
            else:
                await self._overrun(worker, job, running)
            worker.running = None
        except asyncio.CancelledError:
            job.future.cancel()
            raise
        finally:
            self._running -= 1
            self._seconds.append(loop.time() - started)

    async def _overrun(self, worker: Worker, job: Job, running: "asyncio.Future[Outcome]") -> None:
        self._finish(job, Outcome(error=TimeoutError(f"the job took more than {job.timeout} s")))
        if not cancel(running) and self._interrupt is not None:
            self._interrupt(worker.state)
        await ended(running, None)

    def _finish(self, job: Job, outcome: Outcome) -> None:
        if outcome.error is None:
            self._done += 1
        else:
            self._failed += 1
        outcome.tell(job.future)


async def _wait_in(line: "deque[asyncio.Future[None]]") -> None:
    place = asyncio.get_running_loop().create_future()
    line.append(place)
    try:
        await place
    finally:
        if place in line:
            line.remove(place)


def _wake_one(line: "deque[asyncio.Future[None]]") -> bool:
    while line:
        place = line.popleft()
        if not place.done():
            place.set_result(None)
            return True
    return False


def _within(name: str, value: int, limit: int) -> int:
    if not 1 <= value <= limit:
        raise InvalidInput(f"{name}={value!r}: want 1 to {limit}")
    return value
