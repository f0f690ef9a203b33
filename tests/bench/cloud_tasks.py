"""Measures the Cloud Tasks emulator: creates/s, dispatches/s, memory of waiting tasks, idle CPU.

`python -m tests.bench.cloud_tasks [--state FILE]`. The emulator is its own process; client and target share this one.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path

import click
import grpc
from aiohttp import web
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

from emulator import launch
from emulator.cloud_tasks import messages as m

PARENT = "projects/bench/locations/here"
BURST = 500
CREATE = "/google.cloud.tasks.v2.CloudTasks/CreateTask"
TICKS = os.sysconf("SC_CLK_TCK")


@click.command()
@click.option("--state", is_flag=True, help="with a state file")
@click.option("--creates", default=5_000, show_default=True)
@click.option("--waiting", default=100_000, show_default=True)
@click.option("--idle-seconds", default=10.0, show_default=True)
def main(state: bool, creates: int, waiting: int, idle_seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = ["--state", str(Path(folder) / "state.db")] if state else []
        with launch.run([launch.cloud_tasks(*options)], log_dir=Path(folder)) as (process,):
            asyncio.run(_measure(process.address, process.pid, creates, waiting, idle_seconds))


async def _measure(address: str, pid: int, creates: int, waiting: int, idle_seconds: float) -> None:
    async with Target() as target, grpc.aio.insecure_channel(address) as channel:
        client = tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))
        plain = channel.unary_unary(CREATE, request_serializer=bytes, response_deserializer=bytes)
        task = m.Task(http_request={"url": target.url, "body": b"x" * 200})
        one, *others = [f"{PARENT}/queues/bench-{n}" for n in range(4)]
        for queue in (one, *others):
            await client.create_queue(parent=PARENT, queue={"name": queue})
            await client.pause_queue(name=queue)

        async def official() -> None:
            await client.create_task(parent=one, task=tasks_v2.Task.wrap(task))

        async def raw(queue: str) -> None:
            await plain(m.CreateTaskRequest(parent=queue, task=task).SerializeToString())

        print(f"creates/s, official client     {creates / await _timed(official, creates):,.0f}")
        cpu = _cpu(pid)
        print(f"creates/s, plain gRPC client   {creates / await _timed(lambda: raw(one), creates):,.0f}")
        print(f"emulator CPU a create          {(_cpu(pid) - cpu) / creates * 1e6:,.0f} µs")
        cpu = _cpu(pid)
        print(f"dispatches/s, one queue        {await _drained(client, [one], target, 2 * creates):,.0f}, limit 500")
        print(f"emulator CPU a dispatch        {(_cpu(pid) - cpu) / creates / 2 * 1e6:,.0f} µs")
        turns = cycle(others)
        await _timed(lambda: raw(next(turns)), 2 * creates)
        print(f"dispatches/s, three queues     {await _drained(client, others, target, 2 * creates):,.0f}, limit 1,500")
        before = _rss(pid)
        task.schedule_time.seconds = int(time.time()) + 86_400
        print(f"creates/s, plain, scheduled    {waiting / await _timed(lambda: raw(one), waiting):,.0f}")
        print(
            f"memory of {waiting:,} waiting   {(_rss(pid) - before) / 1e6:,.0f} MB, process {_rss(pid) / 1e6:,.0f} MB"
        )
    cpu = _cpu(pid)
    await asyncio.sleep(idle_seconds)
    print(f"idle CPU                       {(_cpu(pid) - cpu) / idle_seconds:.2%} over {idle_seconds:.0f} s")


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


def _cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
