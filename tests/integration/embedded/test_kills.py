"""The whole product on one file while SIGKILL hits functions and workers at random: every 202 counts, and once."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from random import Random

import msgspec
import pytest

from emulator.http_client import Connection
from emulator.local import Local, local
from emulator.process import Process, Program
from tally import config, embedded
from tally.embedded.writer import Transaction
from tally.ports import Backend, read
from tally.votes import keys, ledger

POLL, PARTITIONS = "kills", 4
CALLERS = 12
KILLS = 8


class Site:
    """Two functions and two workers; a killed one is replaced by another on another port."""

    def __init__(self, here: Local) -> None:
        self.here = here
        self.functions: list[Process] = []
        self.workers: list[Process] = []

    async def start(self) -> None:
        for processes, program in self._kinds() * 2:
            processes.append(await self._started(program))

    async def replace(self, random: Random) -> None:
        processes, program = random.choice(self._kinds())
        place = random.randrange(len(processes))
        processes[place].kill()
        processes[place] = await self._started(program)

    def stop(self) -> None:
        for process in self.functions + self.workers:
            process.kill()

    def _kinds(self) -> list[tuple[list[Process], Program]]:
        return [(self.functions, self.here.serve()), (self.workers, self.here.worker())]

    async def _started(self, program: Program) -> Process:
        process = Process(program, self.here.logs)  # in the main thread: it dies with its parent
        await asyncio.to_thread(process.wait_until_ready)
        return process


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with local("embedded", tmp_path) as here:
        site = Site(here)
        try:
            await site.start()
            yield site
        finally:
            site.stop()


async def _vote(site: Site, random: Random, numbers: "count[int]", enough: asyncio.Event) -> int:
    """Vote until it is enough, each vote until its 202; return how many that were."""
    accepted = 0
    while not enough.is_set():
        body = msgspec.json.encode({"option": "red", "voter": f"v-{next(numbers)}"})
        while True:
            if await _accepted(random.choice(site.functions), body):
                break
            await asyncio.sleep(0.05)
        accepted += 1
    return accepted


async def _accepted(function: Process, body: bytes) -> bool:
    async with Connection(function.address) as connection:
        try:
            reply = await connection.request("POST", f"/v1/polls/{POLL}/votes", body)
        except (OSError, EOFError):
            return False
    assert reply.status in (202, 503), reply.body
    return reply.status == 202


async def _counted(backend: Backend) -> int:
    found, _ = await read(backend.store, [keys.shard(POLL, number) for number in range(PARTITIONS)])
    return sum(sum(ledger.parse_shard(entity).counts) for entity in found.values())


def _waiting(transaction: Transaction) -> int:
    """Return how many messages are not settled, those that killed workers held among them."""
    waiting: int = transaction.execute("SELECT count(*) FROM delivery").fetchone()[0]
    return waiting


async def test_every_202_counts_once_whatever_is_killed(site: Site) -> None:
    random = Random(1)
    poll = {"id": POLL, "title": "?", "options": [{"id": "red", "label": "red"}], "partitions": PARTITIONS}
    async with Connection(site.functions[0].address) as connection:
        made = await connection.request("POST", "/v1/polls", msgspec.json.encode(poll))
        assert made.status == 201, made.body
    numbers, enough = count(), asyncio.Event()
    callers = [asyncio.create_task(_vote(site, random, numbers, enough)) for _ in range(CALLERS)]
    for _ in range(KILLS):
        await asyncio.sleep(random.uniform(0.2, 0.8))
        await site.replace(random)
    enough.set()
    accepted = sum(await asyncio.gather(*callers))
    assert accepted > 500

    backend = await embedded.open(config.load(site.here.environ))
    async with asyncio.timeout(60):
        while True:
            if await backend.write(_waiting) == 0:
                break
            await asyncio.sleep(0.2)
    assert await _counted(backend) == accepted
    await backend.close()
