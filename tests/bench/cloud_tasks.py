"""Our Cloud Tasks emulator: creates/s, dispatches/s, memory of waiting tasks, idle CPU.

The emulator is its own process; client and target share this one.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import grpc
from aiohttp import web
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

from emulator import launch
from emulator.cloud_tasks import messages as m
from tests.bench.measure import Figure, Outcome, group_cpu
from tests.bench.stage import Stage

PARENT = "projects/bench/locations/here"
BURST = 500
CREATE = "/google.cloud.tasks.v2.CloudTasks/CreateTask"
IDLE_SECONDS = 5.0
SECTION = "cloud-tasks"


async def run(stage: Stage) -> Outcome:
    creates, waiting = stage.votes(2_000, least=400), 0 if stage.quick else 40_000
    with tempfile.TemporaryDirectory() as folder:
        figures = await _figures(Path(folder), [], creates, waiting)
        if not stage.quick:
            kept = await _figures(Path(folder), ["--state", f"{folder}/state.db"], creates, 0)
            figures += [replace(figure, name=f"with a state file: {figure.name}") for figure in kept]
    return Outcome(figures=tuple(figures))


async def _figures(logs: Path, options: Sequence[str], creates: int, waiting: int) -> list[Figure]:
    with launch.run([launch.cloud_tasks(*options)], log_dir=logs) as (process,):
        return [figure async for figure in _measure(process.address, process.pid, creates, waiting)]


async def _measure(address: str, pid: int, creates: int, waiting: int) -> AsyncIterator[Figure]:
    async with Target() as target, grpc.aio.insecure_channel(address) as channel:
        client = tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))
        plain = channel.unary_unary(CREATE, request_serializer=bytes, response_deserializer=bytes)
        task = m.Task(http_request={"url": target.url, "body": b"x" * 200})
        kept, one, *others = [f"{PARENT}/queues/bench-{n}" for n in range(5)]
        for queue in (kept, one, *others):
            await client.create_queue(parent=PARENT, queue={"name": queue})
            await client.pause_queue(name=queue)

        async def official() -> None:
            await client.create_task(parent=one, task=tasks_v2.Task.wrap(task))

        async def raw(queue: str) -> None:
            await plain(m.CreateTaskRequest(parent=queue, task=task).SerializeToString())

        if waiting:  # first: those that wait would take the room of those dispatched
            await raw(kept)
            before = _rss(pid)
            task.schedule_time.seconds = int(time.time()) + 86_400
            await _timed(lambda: raw(kept), waiting)
            task.ClearField("schedule_time")
            yield _figure(f"memory of each of {waiting:,} that wait", "bytes", (_rss(pid) - before) / waiting)
        yield _figure("created, official client", "tasks/s", creates / await _timed(official, creates))
        cpu = group_cpu(pid)
        rate = creates / await _timed(lambda: raw(one), creates)
        yield _figure("created, plain gRPC client", "tasks/s", rate, (group_cpu(pid) - cpu) / creates)
        cpu = group_cpu(pid)
        rate = await _drained(client, [one], target, 2 * creates)
        spent = (group_cpu(pid) - cpu) / creates / 2
        yield _figure("dispatched, one queue", "tasks/s", rate, spent, note="limit 500")
        if 2 * creates > BURST * len(others):
            turns = cycle(others)
            await _timed(lambda: raw(next(turns)), 2 * creates)
            rate = await _drained(client, others, target, 2 * creates)
            yield _figure("dispatched, three queues", "tasks/s", rate, note="limit 1,500")
    if waiting:
        cpu = group_cpu(pid)
        await asyncio.sleep(IDLE_SECONDS)
        yield _figure("CPU while idle", "% of a core", (group_cpu(pid) - cpu) / IDLE_SECONDS * 100)


def _figure(name: str, unit: str, value: float, cpu: float = 0.0, note: str = "") -> Figure:
    """Return one figure; `cpu`: seconds of the emulator a task."""
    return Figure(section=SECTION, name=name, unit=unit, samples=(value,), cpu=(cpu * 1e6,) if cpu else (), note=note)


class Target:
    """An HTTP server that answers 200 and counts."""

    def __init__(self) -> None:
        self.url = ""
        self._received = asyncio.Semaphore(0)
        app = web.Application()
        app.router.add_post("/", self._answer)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> "Target":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def receive(self, count: int) -> None:
        for _ in range(count):
            await self._received.acquire()

    async def _answer(self, _: web.Request) -> web.Response:
        self._received.release()
        return web.Response()


async def _drained(client: tasks_v2.CloudTasksAsyncClient, queues: list[str], target: Target, count: int) -> float:
    """Resume paused queues that hold `count` tasks together; return the dispatches a second after their bursts."""
    start = time.perf_counter()
    for queue in queues:
        await client.resume_queue(name=queue)
    await target.receive(count)
    return (count - BURST * len(queues)) / (time.perf_counter() - start)


async def _timed(call: Callable[[], Awaitable[None]], count: int, concurrency: int = 64) -> float:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await call()

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return time.perf_counter() - start


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
