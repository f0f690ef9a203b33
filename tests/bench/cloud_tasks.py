"""Measures the Cloud Tasks emulator: creates/s, dispatches/s, memory of waiting tasks, idle CPU.

`python -m tests.bench.cloud_tasks [--state FILE]`. The emulator is its own process; client and target share this one.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import grpc
from aiohttp import web
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport
from google.protobuf import timestamp_pb2

from emulator import launch
from emulator.cloud_tasks import messages as m

PARENT = "projects/bench/locations/here"
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
    received, all_received = 0, asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        nonlocal received
        received += 1
        if received == 2 * creates:
            all_received.set()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    async with grpc.aio.insecure_channel(address) as channel:
        client = tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))
        queue = f"{PARENT}/queues/bench"
        await client.create_queue(parent=PARENT, queue={"name": queue})
        await client.pause_queue(name=queue)
        task = tasks_v2.Task(http_request=tasks_v2.HttpRequest(url=url, body=b"x" * 200))

        async def official() -> None:
            await client.create_task(parent=queue, task=task)

        stub = channel.unary_unary(CREATE, request_serializer=bytes, response_deserializer=bytes)
        raw = m.CreateTaskRequest(parent=queue, task=type(task).pb(task)).SerializeToString()

        async def plain() -> None:
            await stub(raw)

        print(f"creates/s, official client     {creates / await _timed(official, creates):,.0f}")
        print(f"creates/s, plain gRPC client   {creates / await _timed(plain, creates):,.0f}")
        start = time.perf_counter()
        await client.resume_queue(name=queue)
        await all_received.wait()
        print(f"dispatches/s, limit 500/s      {2 * creates / (time.perf_counter() - start):,.0f} (burst 500)")
        before = _rss(pid)
        later = timestamp_pb2.Timestamp(seconds=int(time.time()) + 86_400)
        pending = m.CreateTaskRequest(parent=queue, task=type(task).pb(task))
        pending.task.schedule_time.CopyFrom(later)
        raw = pending.SerializeToString()
        print(f"creates/s, plain, scheduled    {waiting / await _timed(plain, waiting):,.0f}")
        print(
            f"memory of {waiting:,} waiting   {(_rss(pid) - before) / 1e6:,.0f} MB, process {_rss(pid) / 1e6:,.0f} MB"
        )
    await runner.cleanup()
    cpu = _cpu(pid)
    await asyncio.sleep(idle_seconds)
    print(f"idle CPU                       {(_cpu(pid) - cpu) / idle_seconds:.2%} over {idle_seconds:.0f} s")


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
