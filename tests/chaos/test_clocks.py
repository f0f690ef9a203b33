"""Functions as real processes whose clocks are off: within the stated bound they count, beyond it they take no vote."""

import asyncio
import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from emulator.http_client import Connection, Reply
from emulator.launch import run
from emulator.local import Local, local
from emulator.process import Process, Program
from tests.chaos.rounds import on_emulators, prepare
from tests.chaos.traffic import KEEP, read_counts
from tests.conftest import Hosts

SOURCE = Path(__file__).with_name("off_clock.py")


@pytest.fixture(params=["firestore", "embedded"])  # the third says no time: its functions cannot compare theirs
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Local]:
    if request.param == "embedded":
        with local("embedded", tmp_path) as backend:
            yield backend
        return
    emulators: Hosts = request.getfixturevalue("emulators")
    yield on_emulators(emulators("firestore"), tmp_path, 0)


def off_by(seconds: int, here: Local) -> Program:
    plain = here.function("public")
    options = ("--target", "public", "--source", str(SOURCE), "--host", "127.0.0.1")
    framework = str(Path(sys.executable).parent / "functions-framework")
    return dataclasses.replace(
        plain,
        command=lambda port: [framework, *options, "--port", str(port)],
        environ={**here.environ, "CLOCK_OFF_SECONDS": str(seconds)},
    )


async def vote(function: Process, voter: str) -> Reply:
    async with Connection(function.address) as connection:
        body = msgspec.json.encode({"option": "red", "voter": voter})
        return await connection.request("POST", f"/v1/polls/{KEEP}/votes", body)


async def counted(function: Process) -> int:
    async with Connection(function.address) as connection:
        return read_counts(await connection.request("GET", f"/v1/polls/{KEEP}/results"))["red"]


async def test_a_clock_within_the_bound_counts_and_one_beyond_it_answers_503(here: Local) -> None:
    await prepare(here)
    programs = [*(off_by(seconds, here) for seconds in (-300, 300, -15, 15)), here.worker()]
    with run(programs, log_dir=here.logs) as (late, early, slow, fast, _worker):
        for function in (late, early):
            refused = await vote(function, "ann")
            assert refused.status == 503
            assert msgspec.json.decode(refused.body, type=dict[str, object])["code"] == "clock"
        for function in (slow, fast):
            assert (await vote(function, f"voter of {function.address}")).status == 202
        limit = time.monotonic() + 30
        while await counted(slow) < 2:
            assert time.monotonic() < limit
            await asyncio.sleep(0.1)
        assert await counted(fast) == 2
