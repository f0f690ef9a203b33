"""What `--state` keeps: over a clean end, over kill -9 at any moment, and that the command line starts it all."""

import asyncio
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import grpc
import pytest
from aiohttp import web
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, GoogleAPICallError
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport

from emulator.cloud_tasks.server import Options, emulator
from emulator.process import guarded
from tests.integration.cloud_tasks.conftest import PARENT, QUEUE, START, Target, eventually

ROOT = Path(__file__).parents[3]
LATER = {"seconds": START // 1_000_000 + 3_600}


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[tasks_v2.CloudTasksAsyncClient]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))


async def test_everything_is_there_after_a_restart(tmp_path: Path, target: Target) -> None:
    options = Options(state=tmp_path / "state.db", queues=("q", "gone"), manual_clock=True, start=START)
    task = {
        "http_request": {"url": target.url, "body": b"kept"},
        "schedule_time": LATER,
        "retry_config": {"max_attempts": 7},
    }
    target.script = [500]
    async with emulator(options) as running, client_of(running.address) as client:
        await client.update_queue(queue={"name": QUEUE, "rate_limits": {"max_dispatches_per_second": 9}})
        kept = await client.create_task(parent=QUEUE, task={**task, "name": f"{QUEUE}/tasks/kept"})
        failed = await client.create_task(parent=QUEUE, task={"http_request": {"url": target.url}})
        await eventually(lambda: running.dispatcher.last.maxlen is not None and len(running.dispatcher.last) == 1)
        deleted = await client.create_task(parent=QUEUE, task={**task, "name": f"{QUEUE}/tasks/deleted"})
        await client.delete_task(name=deleted.name)
        await client.create_task(parent=f"{PARENT}/queues/gone", task=task)
        await client.delete_queue(name=f"{PARENT}/queues/gone")
        before = [each async for each in await client.list_tasks(request={"parent": QUEUE, "response_view": 2})]
    assert len(before) == 2
    async with emulator(replace(options, queues=())) as running, client_of(running.address) as client:
        after = [each async for each in await client.list_tasks(request={"parent": QUEUE, "response_view": 2})]
        assert after == before
        assert {each.name for each in after} == {kept.name, failed.name}
        assert (await client.get_queue(name=QUEUE)).rate_limits.max_dispatches_per_second == 9
        for name in (kept.name, deleted.name):
            with pytest.raises(AlreadyExists):
                await client.create_task(parent=QUEUE, task={**task, "name": name})
        with pytest.raises(FailedPrecondition):
            await client.create_queue(parent=PARENT, queue={"name": f"{PARENT}/queues/gone"})


async def test_a_manual_clock_and_the_signing_key_go_on(tmp_path: Path) -> None:
    options = Options(state=tmp_path / "state.db", manual_clock=True, start=START)
    now, certificates = [], []
    for _ in range(2):
        async with emulator(options) as running:
            reader, writer = await asyncio.open_connection(*running.address.split(":"))
            writer.write(b"GET /oauth2/v1/certs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            certificates.append((await reader.read()).split(b'":"')[0].rsplit(b'"')[-1])
            writer.close()
            await running.dispatcher.advance(running.queues.clock, running.queues.clock.now() + 5)  # type: ignore[arg-type]  # it is manual
            now.append(running.queues.clock.now())
    assert now == [START + 5, START + 10]
    assert certificates[0] == certificates[1]


async def test_a_state_file_belongs_to_one_emulator_and_one_format(tmp_path: Path) -> None:
    options = Options(state=tmp_path / "state.db")
    async with emulator(options):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            async with emulator(options):
                pass
    db = sqlite3.connect(tmp_path / "state.db")
    db.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    db.commit()
    db.close()
    with pytest.raises(ValueError, match="format 99"):
        async with emulator(options):
            pass


class Process:
    """The emulator as a process that can be killed."""

    def __init__(self, child: asyncio.subprocess.Process, address: str) -> None:
        self.child = child
        self.address = address

    async def end(self, number: int) -> int:
        self.child.send_signal(number)
        return await self.child.wait()


async def launch(*options: str) -> Process:
    child = await asyncio.create_subprocess_exec(
        *guarded([sys.executable, "-m", "emulator.cloud_tasks", "--port=0", *options]),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdout is not None
    line = (await asyncio.wait_for(child.stdout.readline(), 60)).decode().strip()
    assert line.startswith("export CLOUD_TASKS_EMULATOR_HOST="), line
    return Process(child, line.partition("=")[2])


async def test_killed_at_any_moment_no_task_is_lost(tmp_path: Path, target: Target) -> None:
    """Tasks are created while the emulator is killed again and again; each that was confirmed is handled."""
    random = Random(7)
    state = str(tmp_path / "state.db")
    confirmed: set[str] = set()

    async def handle() -> web.Response:
        await asyncio.sleep(random.random() / 50)
        return web.Response(status=random.choice((200, 200, 500)))

    async def feed(address: str) -> None:
        async with client_of(address) as client:
            while True:
                task = {"http_request": {"url": target.url, "body": b"x"}}
                try:
                    made = await client.create_task(parent=QUEUE, task=task, timeout=5)
                except GoogleAPICallError:
                    return
                confirmed.add(made.name.rsplit("/", 1)[1])

    target.script = [handle] * 1_000_000
    for _ in range(4):
        process = await launch("--state", state, "--queue", "q")
        async with client_of(process.address) as client:  # else a task that fails ten times in a row waits for minutes
            await client.update_queue(queue={"name": QUEUE, "retry_config": {"max_backoff": {"nanos": 500_000_000}}})
        feeding = [asyncio.create_task(feed(process.address)) for _ in range(4)]
        await asyncio.sleep(0.3 + random.random())
        assert await process.end(signal.SIGKILL) == -signal.SIGKILL
        await asyncio.gather(*feeding)
    process = await launch("--state", state)
    try:
        await eventually(lambda: {seen.headers["x-cloudtasks-taskname"] for seen in target.seen} >= confirmed, 60)
        async with client_of(process.address) as client, asyncio.timeout(60):
            while [task async for task in await client.list_tasks(parent=QUEUE)]:  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.05)
    finally:
        assert await process.end(signal.SIGTERM) == 0
    assert len(confirmed) > 100


async def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "queue.yaml"
    bad.write_text("queue: 5")
    for options, message in (
        (["--queue-yaml", str(bad)], b"want a mapping"),
        (["--queue", "under_score"], b"at most 100 characters"),
        (["--state", str(tmp_path / "no" / "such" / "folder")], b"unable to open database"),
    ):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "emulator.cloud_tasks", "--port=0", *options,
            cwd=ROOT, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await asyncio.wait_for(child.communicate(), 60)
        assert child.returncode == 1
        assert message in errors
        assert b"Traceback" not in errors
