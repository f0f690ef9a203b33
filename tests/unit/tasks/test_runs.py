"""The records of runs: what two processes write at once, and what is asked for too late."""

import asyncio
from random import Random

from msgspec.structs import replace

from tally.tasks.run import Run, State
from tally.tasks.runs import Runs
from tests.unit.tasks.pull import World, run

NEW = Run(id="r", call="f", queue="q", epoch=1, due=0, keep=None)


def runs(world: World) -> Runs:
    return Runs(world.store, world.clock, Random(1))


def test_two_that_change_a_run_at_once_both_see_what_the_other_wrote() -> None:
    def one_more(run: Run | None) -> Run:
        assert run is not None
        return replace(run, attempt=run.attempt + 1)

    async def body(world: World) -> None:
        await runs(world).change("r", lambda _: NEW)
        world.store.latency = 0.02
        await asyncio.gather(*(runs(world).change("r", one_more) for _ in range(4)))
        assert (await runs(world).get("r")).attempt == 4
        assert world.store.refused > 0, "they have not met"

    run(body)


def test_two_that_make_a_run_at_once_make_it_once() -> None:
    async def body(world: World) -> None:
        world.store.latency = 0.02
        made: list[str] = []

        def make(run: Run | None) -> Run:
            made.append("made" if run is None else "found")
            return run or NEW

        await asyncio.gather(*(runs(world).change("r", make) for _ in range(2)))
        assert made == ["made", "made", "found"]
        assert await runs(world).get("r") == NEW

    run(body)


def test_nothing_is_written_when_a_step_changes_nothing() -> None:
    async def body(world: World) -> None:
        await runs(world).change("r", lambda _: replace(NEW, state=State.DONE))
        commits = len(world.store.commits)
        await runs(world).change("r", lambda run: run or NEW)
        assert len(world.store.commits) == commits

    run(body)
