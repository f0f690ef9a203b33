"""Calls of task functions through real processes: pulled by `tally worker`, pushed to the function `run_task`."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from uuid import uuid4

import pytest

from emulator.process import Process, Program, guarded
from tally import bootstrap, config
from tally.errors import TaskFailed
from tally.tasks.deferred import registry
from tally.tasks.run import State
from tally.tasks.system import TaskSystem
from tests.conftest import Hosts
from tests.integration.tasks import shop

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
WAIT = 40.0


@dataclass(frozen=True, slots=True)
class Place:
    environ: Mapping[str, str]
    logs: Path

    @contextlib.contextmanager
    def process(self, name: str, *command: str) -> Iterator[Process]:
        """Run a command, which gets its port last; it is told its own address as that of `run_task`."""

        def at(port: int) -> list[str]:
            return [
                "env",
                f"TALLY_RUN_TASK_URL=http://127.0.0.1:{port}",
                str(BIN / command[0]),
                *command[1:],
                str(port),
            ]

        process = Process(Program(name=name, command=at, ready_path="/live", environ=self.environ), self.logs)
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.stop()


@pytest.fixture(params=["embedded", "emulator"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    environ = {
        "TALLY_BACKEND": request.param,
        "TALLY_PROJECT": f"shop-{uuid4().hex[:12]}",
        "TALLY_STATE": str(tmp_path / "state"),
        "TALLY_TASK_MODULES": "tests.integration.tasks.shop",
        "TALLY_PUSH_QUEUES": "pushed",
    }
    if request.param == "emulator":
        hosts: Hosts = request.getfixturevalue("emulators")
        environ |= hosts("firestore-mode")
        environ |= {"CLOUD_TASKS_EMULATOR_HOST": request.getfixturevalue("cloud_tasks_host")}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "GOOGLE_APPLICATION_CREDENTIALS") if name in os.environ}
    return Place({**kept, **environ, "PYTHONPATH": str(ROOT)}, tmp_path / "logs")


@pytest.fixture
def runner(place: Place) -> Iterator[str]:
    """Run what runs the calls: a worker for the pull queue, and for the push queue the function; give its URL."""
    worker = ("tally", "worker", "--queue", "default=4", "--queue", "low", "--host", "127.0.0.1", "--port")
    source = str(ROOT / "functions/main.py")
    function = ("functions-framework", "--target", "run_task", "--source", source, "--host", "127.0.0.1", "--port")
    serve = ("tally", "serve", "--port")
    push = serve if place.environ["TALLY_BACKEND"] == "embedded" else function
    with place.process("worker", *worker) as working, place.process("push", *push) as pushed:
        yield f"http://{pushed.address}"
        assert 'tally_calls_seconds_count{operation="query",outcome="ok",port="store"}' in metrics(working.address)


def metrics(address: str) -> str:
    connection = HTTPConnection(address, timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


@pytest.fixture
async def system(place: Place, runner: str) -> AsyncIterator[TaskSystem]:
    settings = config.load({**place.environ, "TALLY_RUN_TASK_URL": runner})
    backend = await bootstrap.open_backend(settings)
    yield await bootstrap.open_tasks(settings, backend, bootstrap.World())
    registry.connect(None)
    await backend.close()


@pytest.mark.parametrize("queue", ["default", "pushed"])
async def test_a_call_goes_all_the_way_to_its_result(system: TaskSystem, queue: str) -> None:
    handles = [await shop.add.later(queue=queue).call(number, 1) for number in range(10)]
    assert [await handle.result(WAIT) for handle in handles] == list(range(1, 11))

    assert await (await shop.third_time.later(queue=queue).call()).result(WAIT) == 3

    large = "x" * 2_000_000
    assert await (await shop.size.later(queue=queue).call(f"{large}y")).result(WAIT) == f"y{large}"

    broken = await shop.broken.later(queue=queue).call()
    with pytest.raises(TaskFailed, match="ValueError") as caught:
        await broken.result(WAIT)
    assert "shop.py" in caught.value.traceback
    status = await broken.status()
    assert (status.state, status.attempt) == (State.FAILED, 3)
    assert broken.id in [parked.id async for parked in system.tasks.parked()]


async def test_the_command_line_calls_shows_lists_and_replays(place: Place, system: TaskSystem) -> None:
    def tally(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "tally"), "task", *arguments]
        return subprocess.run(command, env=dict(place.environ), capture_output=True, text=True, timeout=60)

    done = tally("call", "shop.add", '{"a":20,"b":22}', "--wait", str(WAIT))
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr
    broken = tally("call", "shop.broken").stdout.strip()
    failed = tally("result", broken, "--wait", str(WAIT))
    assert failed.returncode == 1
    assert "ValueError" in failed.stderr
    assert json.loads(tally("status", broken, "--json").stdout)["state"] == "failed"
    assert broken in tally("parked", "list").stdout
    assert tally("parked", "replay", broken).stdout.strip() == "1 replayed"
    assert tally("call", "shop.add", '{"a":1}').returncode == 1
    assert tally("call", "nothing").returncode == 1


async def test_a_push_from_anybody_but_cloud_tasks_is_refused(place: Place, runner: str) -> None:
    if place.environ["TALLY_BACKEND"] == "embedded":
        pytest.skip("on one machine whoever reaches the port may push")
    connection = HTTPConnection(runner.removeprefix("http://"), timeout=20)
    body = b'{"v":1,"call":"shop.add","arguments":{"a":1,"b":2}}'
    for token in (None, "Bearer x.y.z", "Bearer "):
        headers = {"content-type": "application/json", "x-cloudtasks-taskname": "forged"}
        connection.request("POST", "/v1/run/pushed", body, headers | ({"authorization": token} if token else {}))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 403
    connection.close()


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_stopped_worker_gives_back_what_runs_in_a_thread_and_exits_in_time(place: Place, signals: int) -> None:
    environ = dict(place.environ)
    command = [str(BIN / "tally"), "worker", "--queue", "stuck", "--host", "127.0.0.1", "--port", "0"]
    async with bootstrap.task_queues(environ):
        handle = await shop.stuck.call()
        worker = subprocess.Popen(guarded(command), env=environ, stderr=subprocess.PIPE)  # noqa: ASYNC220  # it takes no time
        try:
            for _ in range(400):
                if (await handle.status()).state is State.RUNNING:
                    break
                await asyncio.sleep(0.1)
            for _ in range(signals):
                worker.terminate()
                await asyncio.sleep(0.5)  # two at once may be one
            _, log = await asyncio.to_thread(worker.communicate, timeout=10)
            assert (worker.returncode, b"stopping-at-once" in log) == (0, signals == 2)
        finally:
            worker.kill()
        status = await handle.status()
        assert status.state is State.WAITING
        assert status.attempts[0].outcome == "interrupted"
    registry.connect(None)
