"""How many tasks a worker takes, from which queue first, and how often it asks."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from tally.errors import InvalidInput
from tally.tasks.pace import LOOK_MAX, LOOK_MIN, Bounds, concurrency, look, poll, shares
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.executing import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("now", "backlog", "running", "then"),
    [(4, 9, 4, 8), (64, 9, 64, 100), (4, 9, 3, 4), (16, 0, 2, 8), (4, 0, 0, 4), (16, 0, 8, 16)],
)
def test_the_limit_doubles_while_all_are_busy_and_more_wait_and_halves_when_half_would_do(
    now: int, backlog: int, running: int, then: int
) -> None:
    assert concurrency(now, backlog=backlog, running=running, bounds=Bounds()) == then


def test_the_poll_interval_doubles_to_its_bound_and_falls_back() -> None:
    bounds = Bounds(poll_min=0.5, poll_max=3)
    assert [poll(0.5, found=False, bounds=bounds), poll(2.0, found=False, bounds=bounds)] == [1.0, 3.0]
    assert poll(3.0, found=True, bounds=bounds) == 0.5


def test_looks_at_the_backlog_get_rarer_while_there_is_none_and_fall_back() -> None:
    assert [look(LOOK_MIN, idle=True), look(25.0, idle=True)] == [2 * LOOK_MIN, LOOK_MAX]
    assert look(LOOK_MAX, idle=False) == LOOK_MIN


def test_small_room_goes_round_by_weight() -> None:
    first = Counter(shares([1, 4], 1, strict=False, turn=turn)[0][0] for turn in range(50))
    assert first == {1: 40, 0: 10}


@pytest.mark.parametrize("bounds", [(0, 1), (5, 4), (1, 1_001)])
def test_bounds_past_the_limits_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput):
        Bounds(at_least=bounds[0], at_most=bounds[1])


@pytest.mark.parametrize("strict", [False, True], ids=["by weight", "strictly"])
def test_a_heavier_queue_is_served_more_often_or_strictly_first(world: World, run: Go, strict: bool) -> None:
    order: list[str] = []

    @world.registry.task("t")
    async def t(queue: str) -> None:
        order.append(queue)
        await asyncio.sleep(1)

    async def main() -> None:
        for _ in range(50):
            for queue in ("high", "low"):
                await t.later(queue=queue).call(queue)
        executor = world.executor({"low": 1, "high": 4}, bounds=Bounds(at_least=5, at_most=5), strict=strict)
        await executor.run(asyncio.Event(), until_empty=True)
        first = Counter(order[:50])
        assert len(order) == 100
        if strict:
            assert first["high"] >= 45
        else:
            assert 35 <= first["high"] <= 45

    run(main())


@pytest.mark.parametrize(("heavy", "room"), [(20, 1), (20, 3), (7, 1), (3, 1), (30, 8)])
def test_a_light_queue_has_its_turn_while_a_heavy_one_never_empties(
    world: World, run: Go, heavy: int, room: int
) -> None:
    """Between two turns of the light queue the heavy one has no more than its weight, and what runs meanwhile."""
    order: list[str] = []

    @world.registry.task("t")
    async def t(queue: str) -> None:
        order.append(queue)
        await asyncio.sleep(1 + len(order) % 3 / 10)  # places come free one by one, at odd times

    async def main() -> None:
        for _ in range(3 * (heavy + 2 * room)):
            await t.later(queue="heavy").call("heavy")
        executor = world.executor({"heavy": heavy, "light": 1}, bounds=Bounds(at_least=room, at_most=room))
        working = asyncio.ensure_future(executor.run(asyncio.Event(), until_empty=True))
        await asyncio.sleep(3)
        for _ in range(2):
            await t.later(queue="light").call("light")
        late = len(order)
        await working
        places = [late, *(place for place, queue in enumerate(order) if queue == "light")]
        assert len(places) == 3
        assert max(b - a for a, b in pairwise(places)) <= heavy + 2 * room

    run(main())


def test_concurrency_follows_the_backlog_between_its_bounds(world: World, run: Go) -> None:
    now = most = 0

    @world.registry.task("t")
    async def t() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(4)
        now -= 1

    async def main() -> None:
        handles = [await t.call() for _ in range(200)]
        async with world.working(bounds=Bounds(at_least=2, at_most=16)):
            await asyncio.sleep(1)
            assert now == 2
            for handle in handles:
                await handle.result(1_000)
            assert most == 16

    run(main())
