"""The examples of the task queues' README, run as they stand there."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import tally.tasks
from emulator.process import guarded
from tally.clock import SystemClock
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task
from tally.testing.store import FakeStore

README = (Path(tally.tasks.__file__).parent / "README.md").read_text()


def block(name: str) -> str:
    found = re.search(rf"<!-- runs as a test: {name} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    assert found, f"the README has no block {name}"
    return found[1]


async def run(code: str, **names: Any) -> None:
    """Run a block that awaits, as the body of a function."""
    exec(f"async def main():\n{textwrap.indent(code, '    ')}", names)
    await names["main"]()


async def test_the_pull_queue_example_runs() -> None:
    sent: list[Any] = []
    store = FakeStore()
    await run(block("pull"), store=store, send=sent.append)
    assert sent == [{"to": 7}]
    stats = await PullQueue(store, "mail", clock=SystemClock()).stats()
    assert (stats.tasks, stats.executed_last_minute) == (1_000, 1)


async def test_the_migrated_worker_runs_and_gives_up_into_the_dead_letters() -> None:
    store = FakeStore()
    queue = PullQueue(store, "thumbnails", clock=SystemClock())
    await queue.add_many(Task.json({"image": n}, tag="cats") for n in (1, 2))
    made: list[int] = []

    def make_thumbnail(image: int) -> None:
        if image == 2:
            raise ValueError("no cat")
        made.append(image)

    rounds = iter(range(4))
    await run(
        block("migration").replace("wait=5", "wait=1").replace("max_attempts=5", "max_attempts=2"),
        store=store,
        make_thumbnail=make_thumbnail,
        stopped=lambda: next(rounds, None) is None,
    )
    assert made == [1]
    (info,) = await queue.list("dead")
    assert "ValueError('no cat')" in (info.error or "")


def test_every_call_that_the_table_names_is_there() -> None:
    ours = re.sub(r"```python\n# App Engine.*?```", "", README, flags=re.DOTALL)
    named = set(re.findall(r"\bqueue\.(\w+)\(", ours))
    assert named >= {"add", "lease", "stats"}
    assert {name for name in named if not hasattr(PullQueue, name)} == set()


async def test_the_curl_example_runs(tmp_path: Path) -> None:
    environ = {**os.environ, "TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    server = await asyncio.create_subprocess_exec(
        *guarded([sys.executable, "-m", "tally.cli", "serve", "--port", "0"]),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        line = (await asyncio.wait_for(server.stdout.readline(), 30)).decode()
        url = re.search(r"http://\S+", line)
        assert url, line
        script = f"set -euo pipefail\n{block('curl')}"
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", script],
            env={**environ, "TALLY_URL": url[0], "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        server.terminate()
        await server.wait()
    assert done.returncode == 0, done.stderr
    assert "cat.png" in done.stdout
    assert '"status":"done"' in done.stdout
    assert '"tasks":2' in done.stdout
