"""Every change of a run's record is told once, by the event that it wants; no kind and no state is left out."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from tally.ports import Write
from tally.tasks.events import AGAIN, ENDS, Kind
from tally.tasks.run import Run, State
from tally.tasks.runs import Runs
from tally.tasks.task import Task
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.telling import TWICE, World, bad, busy, fatal, fine, freeze_and_rescue, unwanted

Change = tuple[Run | None, Run]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[Change]:
    """Give every change of a run's record that was stored, by whomever: as it was, as it is."""
    found: list[Change] = []
    change = Runs.change

    async def seen(runs: Runs, run_id: str, step: Callable[[Run | None], Run], extra: tuple[Write, ...] = ()) -> Run:
        last: list[Change] = []

        def noted(stored: Run | None) -> Run:
            new = step(stored)
            last.append((stored, new))
            return new

        run = await change(runs, run_id, noted, extra)
        found.extend(each for each in last[-1:] if each[0] is not each[1])
        return run

    monkeypatch.setattr(Runs, "change", seen)
    return found


def due(change: Change) -> list[Kind]:
    """Return the events that a change of a run wants; the `lost` of a run is its former worker's to tell."""
    before, after = change
    was = None if before is None else before.state
    if after.state is State.RUNNING and was is State.RUNNING and before is not None and after.attempt > before.attempt:
        return [Kind.LOST, Kind.RESCUED, Kind.STARTED]
    if after.state == was or after.state is State.QUEUED:
        return []  # a beat, a run that was hastened, a new one
    if after.state is State.RUNNING:
        return [Kind.STARTED]
    if after.state is State.WAITING:
        return [AGAIN[after.attempts[-1].outcome]]
    if after.state is State.CANCELLED:
        return [Kind.LOST] * (was is State.RUNNING)
    return [ENDS[after.state]] if after.state in ENDS else [Kind.DEAD_LETTERED]


def test_every_change_of_a_run_has_its_event_and_every_kind_of_event_happens(
    world: World, run: Go, changes: list[Change]
) -> None:
    """A kind that nothing tells any more, or a state that is reached untold, fails here."""
    for function in (fine, bad, busy, unwanted, fatal):
        world.registry.task(function.__name__, retry=TWICE, fatal=(KeyError,))(function)

    @world.registry.task("long")
    async def long() -> None:
        await asyncio.sleep(12)

    @world.registry.task("endless", queue="endless")
    async def endless() -> None:
        await asyncio.sleep(3_000)

    world.listen()

    async def interrupted_and_cancelled() -> None:
        handles = [await endless.call() for _ in range(2)]
        working = asyncio.ensure_future(world.serve("endless", worker="w3", seconds=31))
        await asyncio.sleep(1)
        await handles[0].cancel()
        await working
        await handles[1].cancel()

    async def main() -> None:
        await long.call()
        await freeze_and_rescue(world)
        await interrupted_and_cancelled()
        for name in ("fine", "bad", "busy", "unwanted", "fatal"):
            await world.registry.functions[name].call()
        await world.system.pull("default").add(Task(payload=b"no call"))
        await world.serve()

    run(main())
    parked = [event for event in world.told if event.kind is Kind.DEAD_LETTERED and event.task]
    assert {event.task for event in parked} == {"bad", "fatal"}  # told beside `failed`, which is the change
    wanted = Counter((after.id, kind) for before, after in changes for kind in due((before, after)))
    assert Counter((event.id, event.kind) for event in world.told if event not in parked) == wanted
    assert {event.kind for event in world.told} == set(Kind)
    assert {after.state for _, after in changes} == set(State)
