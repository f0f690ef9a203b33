"""The records of runs: what two processes write at once, and what is asked for too late."""

import asyncio
from random import Random

import pytest
from msgspec.structs import replace

from tally.errors import Refused
from tally.tasks.parked import Parked, ParkedCalls, write
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


def test_a_sweep_leaves_the_record_of_a_run_that_is_made_anew_meanwhile() -> None:
    async def body(world: World) -> None:
        over = replace(NEW, state=State.DONE, ended=0, keep=0.0)
        await runs(world).change("r", lambda _: over)
        await asyncio.sleep(100_000)
        world.store.meanwhile = [lambda: runs(world).change("r", lambda _: NEW)]
        await runs(world).sweep()
        assert await runs(world).get("r") == NEW

    run(body)


def test_a_call_that_is_parked_anew_is_not_dropped_with_what_was_seen_before() -> None:
    async def body(world: World) -> None:
        parked = Parked(id="r", queue="q", call="f", reason="fatal", error="", at=0, payload=b"1", headers={}, epoch=1)
        calls = ParkedCalls(world.store)
        await world.store.commit([write(parked)])
        _, version = await calls.get("r")
        await world.store.commit([write(parked)])
        with pytest.raises(Refused):
            await calls.drop("r", version)
        found, version = await calls.get("r")
        await calls.drop("r", version)
        assert (found, [each async for each in calls.all()]) == (parked, [])

    run(body)
