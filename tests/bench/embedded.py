"""The pipeline on one SQLite file: no cloud, no emulator, and durable."""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from emulator.local import local
from emulator.port import free_port
from emulator.process import Process
from tally import config
from tally.ports import Backend
from tests.bench import load
from tests.bench.http import singles
from tests.bench.measure import Budget, Figure, Outcome, Run, alternate, group_cpu, rates
from tests.bench.stage import Stage, counted, make_poll, opened, until
from tests.bench.worker import ours

SECTION = "embedded"
SERVERS, CONNECTIONS = 2, 512
# What two cores have for a vote at 10,000 votes/s, whoever spends it.
CPU_MOST = 2 * 1e6 / 10_000


class _Whole(NamedTuple):
    """A run of the whole, with the CPU µs that a vote costs each part of it; a worker's until all is counted."""

    run: Run
    servers: float
    worker: float
    client: float


async def run(stage: Stage) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as state, local("embedded", Path(state)) as here:
        own = Stage(here=here, scale=stage.scale, repetitions=stage.repetitions)
        contenders = {
            "worker, 1 vote a message": partial(ours, own, 20_000, 1),
            "worker, 100 votes a message": partial(ours, own, 300_000, 100),
        }
        runs = {} if stage.quick else await alternate(own.repetitions, contenders)  # no budget
        wholes = await _wholes(own)
    parts = ("servers", "worker", "client")
    shares = [f"{part} {statistics.median(getattr(whole, part) for whole in wholes):.0f}" for part in parts]
    cpu = Figure(
        section=SECTION,
        name="the same: CPU a vote, the client's too",
        unit="µs",
        samples=tuple(whole.servers + whole.worker + whole.client for whole in wholes),
        note=", ".join(shares),
    )
    single = "single votes over HTTP, all counted meanwhile"
    processes = f"{SERVERS} servers on one port, a worker, a client"
    return Outcome(
        figures=(
            *(rates(SECTION, name, "votes/s", found) for name, found in runs.items()),
            rates(SECTION, single, "votes/s", [whole.run for whole in wholes], note=processes),
            cpu,
        ),
        budgets=(
            Budget(
                name="embedded: CPU µs a single vote, two cores at 10,000 votes/s",
                figure=cpu,
                bound=CPU_MOST,
                aim=110,
                at_most=True,
            ),
        ),
    )


async def _wholes(stage: Stage) -> list[_Whole]:
    """Let several servers and a worker, all on one file, take and count votes over HTTP."""
    here, port = stage.here, free_port()
    backend = await opened(config.load(here.environ))
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(here.started(here.serve(port, "--reuse-port"))) for _ in range(SERVERS)]
        worker = running.enter_context(here.started(here.worker()))
        wholes = [
            await _whole(backend, servers, worker, stage.votes(40_000, least=8_000)) for _ in range(stage.repetitions)
        ]
    await backend.close()
    return wholes


async def _whole(backend: Backend, servers: Sequence[Process], worker: Process, count: int) -> _Whole:
    poll, address = await make_poll(backend), servers[0].address
    requests = singles(address, f"/v1/polls/{poll.id}/votes", count)
    server_cpu, worker_cpu, own_cpu = _cpu(servers), _cpu([worker]), time.process_time()
    rate = await load.send(address, requests, connections=CONNECTIONS)
    client = (time.process_time() - own_cpu) / count * 1e6

    async def all_counted() -> bool:
        return await counted(backend, poll) == count

    await until(all_counted)
    taken = (_cpu(servers) - server_cpu) / count * 1e6
    worked = (_cpu([worker]) - worker_cpu) / count * 1e6
    return _Whole(Run(rate, taken + worked), taken, worked, client)


def _cpu(processes: Sequence[Process]) -> float:
    return sum(group_cpu(process.pid) for process in processes)
