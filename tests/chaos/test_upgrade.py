"""A next version, built from a patched copy of the source, is rolled in and back under load: real processes, exact."""

import asyncio
import dataclasses
import shutil
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from emulator.local import Local, local
from emulator.process import Process, Program
from tests.chaos.judge import check_letters, check_the_ledger, counted, health, until
from tests.chaos.rounds import make_polls
from tests.chaos.site import EXIT_SECONDS
from tests.chaos.traffic import Traffic
from tests.simulation.planted import apply
from tests.unit.votes.next_version import PATCH

SOURCE = Path(__file__).parents[2] / "functions"
CLIENTS = 6
VOTES = 100


def next_version(here: Local, folder: Path) -> Local:
    """Return the product's next version on the same backend."""
    shutil.copytree(SOURCE, folder)
    for module in {edit.module for edit in PATCH}:
        path = folder / f"tally/votes/{module}.py"
        edits = [edit for edit in PATCH if edit.module == module]
        path.write_text(apply(path.read_text(), edits, str(path)))
    return dataclasses.replace(here, environ={**here.environ, "PYTHONPATH": str(folder)})


class Post:
    """One process at a time, but while the next takes over."""

    def __init__(self, logs: Path) -> None:
        self.up: list[Process] = []
        self._logs = logs

    async def start(self, program: Program) -> None:
        process = Process(program, self._logs)  # in the main thread: it dies with its parent
        self.up.append(process)
        await asyncio.to_thread(process.wait_until_ready)

    async def end_former(self) -> None:
        former = self.up.pop(0)
        former.signal(signal.SIGTERM)
        assert await asyncio.to_thread(former.wait, EXIT_SECONDS) == 0

    async def take_over(self, program: Program) -> None:
        await self.start(program)
        await self.end_former()

    def kill(self) -> None:
        for process in self.up:
            process.kill()


async def test_a_rolling_upgrade_and_its_roll_back_under_load_are_exact(tmp_path: Path) -> None:
    """Workers are upgraded first and rolled back last, beside the others for a while, as a deployment does."""
    with local("embedded", tmp_path / "state") as here, ExitStack() as ending:
        later = next_version(here, tmp_path / "next")
        functions, workers = Post(here.logs), Post(here.logs)
        ending.callback(functions.kill)
        ending.callback(workers.kill)
        traffic, enough = Traffic(lambda: [process.address for process in functions.up], seed=1), asyncio.Event()

        async def more_votes() -> None:
            than = traffic.ballots.total()

            async def so() -> bool:
                return traffic.ballots.total() > than + VOTES

            await until(so)

        await workers.start(here.worker())
        await functions.start(here.serve())
        await make_polls(functions.up[0].address)
        async with asyncio.TaskGroup() as clients:
            for client in range(CLIENTS):
                clients.create_task(traffic.vote(client, enough))
            await more_votes()
            await workers.start(later.worker())
            await more_votes()
            await workers.end_former()
            await functions.take_over(later.serve())
            await more_votes()
            await workers.start(here.worker())
            await until(partial(_meets_a_later_message, workers.up[1]))
            await functions.take_over(here.serve())
            await workers.end_former()
            await more_votes()
            await until(partial(_leaves_a_later_ledger_alone, workers.up[0]))
            await workers.take_over(later.worker())
            await functions.take_over(later.serve())
            enough.set()
        await counted(functions.up[0].address, traffic)
        wrong: list[str] = []
        await check_the_ledger(later, traffic, wrong)
        await check_letters(here, wrong)
        assert wrong == []


async def _meets_a_later_message(worker: Process) -> bool:
    return (await health(worker))["newer_version"] != 0


async def _leaves_a_later_ledger_alone(worker: Process) -> bool:
    return "newer-format" in str((await health(worker))["parked"])
