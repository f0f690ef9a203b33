"""Celery with Redis beside the worker, where both are installed: a server and a worker of its own, no emulator."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec

from emulator.port import free_port
from emulator.process import spawn, stop
from tests.bench.measure import Cost, Outcome, Run, alternate, group_cpu, rates, ratio
from tests.bench.rivals import OURS, counted_run, with_copies
from tests.bench.stage import OPTIONS, Stage

SECTION = "celery"
PEER = "Celery with Redis"
PEERS = Path(__file__).parent / "peers"
PYTHON = Path(__file__).parents[2] / ".venv-celery/bin/python"
# Memorystore for Redis, Basic, 1 GB: list price in dollars an hour. Neither a command nor a byte costs anything.
HOUR = 0.049


class Peer(NamedTuple):
    """A Redis and a Celery worker that run; `pids` lead their process groups."""

    environ: dict[str, str]
    pids: tuple[int, int]


class Answer(msgspec.Struct):
    seconds: float
    total: int


async def run(stage: Stage) -> Outcome:
    if missing := _missing():
        return Outcome(skipped=f"{SECTION} is left out: {missing}")
    tasks, votes = stage.votes(3_000, least=1_000), stage.votes(60_000, least=20_000)
    with _peer(stage) as peer:
        await _celery(peer, 100)  # so that its start is not in the first run
        runs = await alternate(
            stage.repetitions, {PEER: partial(_celery, peer, tasks), OURS: partial(_ours, stage, votes)}
        )
    # It is exact, or `_celery` raises.
    cost = Cost(writes=0, dollars=HOUR / 3_600 / runs[PEER][-1].rate * 1_000_000, off=0)
    note = (
        f"2 commands of Redis a vote; ${HOUR * 730:,.0f} a month, busy or not: the price of a million is at this rate"
    )
    figures = (
        rates(SECTION, PEER, "votes/s", runs[PEER], cost=cost, note=note),
        rates(SECTION, OURS, "votes/s", runs[OURS]),
        ratio(SECTION, f"{OURS} ÷ {PEER}", runs[OURS], runs[PEER]),
    )
    return Outcome(figures=figures)


def _missing() -> str:
    if shutil.which("redis-server") is None:
        return "install redis-server (Debian: apt-get install redis-server)"
    return "" if PYTHON.exists() else "`make bench-celery` installs Celery in a virtual environment of its own"


async def _ours(stage: Stage, votes: int) -> Run:
    timed, _ = await counted_run(stage, votes, 1)
    return timed


async def _celery(peer: Peer, votes: int) -> Run:
    """Count votes, one in twenty of them sent twice, that all wait when the worker begins; the CPU is both servers'."""
    lines = "".join(f"{OPTIONS[number % 5]} v-{number}\n" for number in with_copies(votes))
    poll = uuid4().hex[:8]
    before = sum(map(group_cpu, peer.pids))
    child = await asyncio.create_subprocess_exec(
        *(str(PYTHON), "celery_load.py", poll, str(votes)),
        cwd=PEERS,
        env=peer.environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate(lines.encode())
    if child.returncode:
        raise RuntimeError(f"celery_load.py ended with {child.returncode}")
    answer = msgspec.json.decode(output, type=Answer)
    if answer.total != votes:
        raise RuntimeError(f"Celery counted {answer.total} of {votes} votes: it is exact unless a worker dies")
    return Run(votes / answer.seconds, (sum(map(group_cpu, peer.pids)) - before) / votes * 1e6)


@contextlib.contextmanager
def _peer(stage: Stage) -> Iterator[Peer]:
    """Start a Redis with its own defaults (snapshots, no append-only file) and a Celery worker without a queue yet."""
    port, state = free_port(), stage.here.logs / "redis"
    state.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
    server = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(state)]
    worker = [str(PYTHON), "-m", "celery", "--workdir", str(PEERS), "-A", "celery_redis", "worker"]
    with (stage.here.logs / "celery.log").open("wb") as log, contextlib.ExitStack() as running:
        pids = []
        for command in (server, [*worker, "--queues", "none-yet", "--loglevel", "WARNING"]):
            child = spawn(command, environ=environ, log=log)
            running.callback(stop, child)
            pids.append(child.pid)
        yield Peer(environ, (pids[0], pids[1]))
