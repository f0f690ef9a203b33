"""The disk under a running product is full for a while: no 202 is lost, and with room again all goes on by itself."""

import asyncio
import dataclasses
import http.client
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from emulator.local import local
from emulator.process import Process
from tests.chaos.judge import health, hold_exact, until
from tests.chaos.rounds import make_polls
from tests.chaos.traffic import KEEP, Traffic

CLIENTS = 6
VOTES = 100


class Disk(Protocol):
    """Where the state lies. `fill` leaves no room to the processes, `free` gives it back."""

    folder: Path

    def fill(self, processes: Sequence[Process]) -> None: ...

    def free(self) -> None: ...


class Quota:
    """The kernel lets no file of a process grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._limits: dict[int, tuple[int, int]] = {}

    def fill(self, processes: Sequence[Process]) -> None:
        for process in processes:
            _, most = self._limits[process.pid] = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, most))

    def free(self) -> None:
        for pid, limits in self._limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


class SmallDisk:
    """A file system of its own, so small that the log alone would fill it; mounting it takes a privileged user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tally-test", str(folder)], check=True)

    def fill(self, processes: Sequence[Process]) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            size = 1 << 20
            while size >= 512:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def free(self) -> None:
        self._ballast.unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)


@pytest.fixture(params=["quota", "small disk"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "quota":
        yield Quota(tmp_path / "state")
        return
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    small = SmallDisk(tmp_path / "state")
    try:
        yield small
    finally:
        small.unmount()


def _vote(address: str) -> tuple[int, str | None, dict[str, object]]:
    """Vote; return the answer's status, when to ask again, and its body."""
    connection = http.client.HTTPConnection(address, timeout=15)
    try:
        body = msgspec.json.encode({"option": "red", "voter": "asks-again"})
        connection.request("POST", f"/v1/polls/{KEEP}/votes", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.getheader("Retry-After"), msgspec.json.decode(reply.read(), type=dict[str, object])
    finally:
        connection.close()


async def test_a_full_disk_refuses_votes_loses_none_and_all_goes_on_once_there_is_room(
    disk: Disk, tmp_path: Path
) -> None:
    with local("embedded", disk.folder) as running:
        here = dataclasses.replace(running, logs=tmp_path / "logs")
        with here.started(here.serve()) as function, here.started(here.worker()) as worker:
            await make_polls(function.address)
            traffic, enough = Traffic(lambda: [function.address], seed=1), asyncio.Event()

            async def more_votes(than: int) -> None:
                async def so() -> bool:
                    return traffic.ballots.total() > than

                await until(so)

            async with asyncio.TaskGroup() as clients:
                for client in range(CLIENTS):
                    clients.create_task(traffic.vote(client, enough))
                await more_votes(VOTES)
                disk.fill([function, worker])
                await _see_the_outage(function, worker)
                disk.free()
                await more_votes(traffic.ballots.total() + VOTES)
                enough.set()
            assert _vote(function.address)[0] == 202
            traffic.counts[KEEP]["red"] += 1
            await hold_exact(here, function.address, traffic)
            assert (await health(function))["publishing_fails_for_seconds"] == 0
            assert (await health(worker))["parked"] == []


async def _see_the_outage(function: Process, worker: Process) -> None:
    """See that votes are refused as a 503 that says when to ask again, and that both processes tell of it."""

    async def refused() -> bool:
        status, again, problem = await asyncio.to_thread(_vote, function.address)
        assert status in (202, 503), problem
        if status == 503:
            assert problem["code"] == "publish-unconfirmed"
            assert again is not None and 1 <= int(again) <= 5
        return status == 503

    async def told() -> bool:
        suffering, working = await health(function), await health(worker)
        fails = msgspec.convert(suffering["publishing_fails_for_seconds"], float)
        return fails > 0 and "SQLITE" in str(working["parked"])

    await until(refused)
    await until(told)
    assert function.running and worker.running
