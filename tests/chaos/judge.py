"""What must be so once all is counted: the results, the ledger behind them, and no dead letters."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from emulator.http_client import Connection
from emulator.local import Local
from emulator.process import Process
from tally import bootstrap, config
from tests.chaos.traffic import Traffic, read_counts


async def until(so: Callable[[], Awaitable[bool]], *, seconds: float = 60) -> None:
    """Wait until it is so, asking again and again; raise TimeoutError when it takes too long."""
    async with asyncio.timeout(seconds):
        while True:
            if await so():
                return
            await asyncio.sleep(0.1)


async def counted(address: str, traffic: Traffic) -> None:
    """Wait until the results are what was accepted."""

    async def so() -> bool:
        return {poll: await results(address, poll) for poll in traffic.counts} == traffic.counts

    await until(so)


async def hold_exact(here: Local, address: str, traffic: Traffic) -> None:
    """Wait until what was accepted is counted; then the ledgers must agree, and no dead letters be there."""
    await counted(address, traffic)
    wrong: list[str] = []
    for poll in traffic.counts:
        _, recounted = await bootstrap.recount(config.load(here.environ), poll, lambda partitions: None)
        wrong += recounted.differences
    await check_letters(here, wrong)
    assert wrong == []


async def health(process: Process) -> dict[str, object]:
    """Return what a process says of itself."""
    async with Connection(process.address) as connection:
        reply = await connection.request("GET", "/health")
    return msgspec.json.decode(reply.body, type=dict[str, object])


async def results(address: str, poll: str) -> dict[str, int]:
    """Return a poll's counts; empty while they cannot be read."""
    async with Connection(address) as connection:
        reply = await connection.request("GET", f"/v1/polls/{poll}/results")
    return read_counts(reply) if reply.status == 200 else {}


async def check_the_ledger(here: Local, traffic: Traffic, wrong: list[str]) -> None:
    """Have each poll recounted from its ledger."""
    for poll, expected in traffic.counts.items():
        tally = str(Path(sys.executable).parent / "tally")
        recount = await asyncio.create_subprocess_exec(
            tally, "recount", poll, "--json", env=here.environ, stdout=PIPE, stderr=PIPE
        )
        output, complaint = await recount.communicate()
        if recount.returncode != 0:
            wrong.append(f"tally recount {poll}: exit code {recount.returncode}: {complaint.decode()}")
        elif (counts := msgspec.json.decode(output, type=dict[str, object])["counts"]) != expected:
            wrong.append(f"tally recount {poll}: {counts}, {expected} were accepted")


async def check_letters(here: Local, wrong: list[str]) -> None:
    """Every vote was good: there are no dead letters."""
    settings = config.load(here.environ)
    backend = await bootstrap.open_backend(settings)
    letters = await backend.puller(settings.dead_letter_subscription).pull(100)
    await backend.close()
    wrong += [f"a dead letter: {letter.attributes}" for letter in letters]
