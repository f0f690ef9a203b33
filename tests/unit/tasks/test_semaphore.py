"""Places of a key on the fake store, in virtual time."""

import asyncio
from random import Random

import pytest

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput, Unavailable
from tally.tasks import run as steps
from tally.tasks.run import Claimed, Run, State
from tally.tasks.runs import Runs
from tally.tasks.semaphore import TRUST, Concurrent, Place, Places, Semaphores
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.pull import Watched


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.fake = FakeStore(clock=self.clock)
        self.store = Watched(self.fake, latency=0.01)
        self.runs = Runs(self.store, self.clock, Random(1))

    def semaphores(self, seed: int = 1) -> Semaphores:
        return Semaphores(self.store, self.runs, self.clock, Random(seed))

    async def claim(self, run_id: str, token: str) -> None:
        """Claim a run for a minute, as a worker does."""

        def step(stored: Run | None) -> Run:
            run = stored or Run(id=run_id, call="f", queue="q", epoch=1, due=self.clock.now(), keep=None)
            found = steps.claim(run, token=token, worker="w", now=self.clock.now(), lease=60 * SECOND, hop=None)
            assert isinstance(found, Claimed)
            return found.run

        await self.runs.change(run_id, step)

    async def beat(self, run_id: str, token: str) -> None:
        def step(stored: Run | None) -> Run:
            beaten = stored and steps.beat(stored, token=token, now=self.clock.now(), lease=60 * SECOND, progress=None)
            assert beaten is not None
            return beaten

        await self.runs.change(run_id, step)


class Mute:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("customer-{customer", "expected"),
        ("customer-{shop}", "{shop} is none of customer, url"),
        ("{customer.name}", "none of"),
        ("{customer[0]}", "none of"),
        ("{customer!r}", "none of"),
        ("{customer:>9}", "none of"),
        ("{}", "none of"),
    ],
)
def test_a_key_asks_for_whole_arguments_of_the_function(key: str, says: str) -> None:
    with pytest.raises(InvalidInput, match="limit key") as caught:
        Concurrent(key, 1).check(["customer", "url"])
    assert says in caught.value.message


def test_a_key_is_made_of_arguments() -> None:
    limit = Concurrent("c-{customer}-{zone}{{}}", 4)
    limit.check(["customer", "zone"])
    assert limit.of({"customer": 7, "zone": "eu", "more": 1}) == "c-7-eu{}"
    assert limit.of({"customer": Mute(), "zone": "eu"}) == limit.key


def test_so_many_runs_may_be_at_once() -> None:
    assert Concurrent("k", limits.CONCURRENT_RUNS).limit == 1_000
    for limit in (0, limits.CONCURRENT_RUNS + 1):
        with pytest.raises(InvalidInput, match="want 1 to 1000"):
            Concurrent("k", limit)


def test_only_when_all_are_taken_are_old_places_doubted() -> None:
    old, new = Place(run="r1", token="t1", until=5), Place(run="r2", token="t2", until=50)
    places = Places(key="k", taken=(old, new))
    assert places.doubtful(3, 10) == []
    assert places.doubtful(2, 10) == [old]
    assert places.checked([old], {}).taken == (new,)
    assert places.checked([old], {"t1": 70}).taken[0].until == 70
    assert places.with_(new, 2) is None


def test_no_more_places_are_given_than_there_are_and_one_that_is_given_back_is_free(world: World, run: Go) -> None:
    async def main() -> None:
        places = await asyncio.gather(*(world.semaphores(n).enter("k", 5, f"r{n}", f"t{n}") for n in range(20)))
        taken = [place for place in places if place is not None]
        assert len(taken) == await world.semaphores().taken("k") == 5
        assert await world.semaphores().enter("other", 1, "r", "t") is not None
        await world.semaphores().leave("k", taken[0].token)
        await world.semaphores().leave("k", taken[0].token)  # again: no harm
        assert await world.semaphores().enter("k", 5, "r20", "t20") is not None
        assert await world.semaphores().enter("k", 5, "r21", "t21") is None

    run(main())


def test_the_entity_of_a_key_goes_with_its_last_place(world: World, run: Go) -> None:
    async def main() -> None:
        for _ in range(2):
            await world.semaphores().enter("k", 5, "r1", "t1")
            assert len(world.fake.of_kind("TaskSemaphore")) == 1
            await world.semaphores().leave("k", "t1")
            assert not world.fake.of_kind("TaskSemaphore")

    run(main())


def test_a_lost_reply_takes_no_second_place(world: World, run: Go) -> None:
    async def main() -> None:
        world.store.after = [Unavailable("the reply was lost")]
        assert await world.semaphores().enter("k", 2, "r1", "t1") is not None
        assert await world.semaphores().taken("k") == 1
        world.store.after = [Unavailable("the reply was lost")]
        await world.semaphores().leave("k", "t1")
        assert await world.semaphores().taken("k") == 0

    run(main())


def test_a_place_is_free_once_its_claim_is_over_and_not_before(world: World, run: Go) -> None:
    async def main() -> None:
        dead, alive = world.semaphores(), world.semaphores()
        for run_id, token in (("r1", "t1"), ("r2", "t2")):
            assert await dead.enter("k", 2, run_id, token) is not None
            await world.claim(run_id, token)
        await asyncio.sleep(30)
        await world.beat("r2", "t2")
        assert await alive.enter("k", 2, "r3", "t3") is None
        await asyncio.sleep(35)  # the claim of r1 is over, that of r2 is not
        assert await alive.enter("k", 2, "r3", "t3") is not None
        await world.claim("r3", "t3")
        assert await alive.enter("k", 2, "r4", "t4") is None
        reads = world.store.calls
        assert await alive.enter("k", 2, "r4", "t4") is None
        assert world.store.calls - reads == 1  # r2 was found alive, and is not looked up each time
        await asyncio.sleep(35)
        assert await alive.enter("k", 2, "r4", "t4") is not None

    run(main())


@pytest.mark.parametrize("what", ["ended", "cancelled", "taken over", "never claimed"])
def test_a_place_whose_claim_does_not_stand_is_free(world: World, run: Go, what: str) -> None:
    async def main() -> None:
        semaphores = world.semaphores()
        await semaphores.enter("k", 1, "r1", "t1")

        def end(stored: Run | None) -> Run:
            assert stored is not None
            now = world.clock.now()
            done = steps.end(stored, token="t1", now=now, state=State.DONE)
            return steps.cancel(stored, now=now) if what == "cancelled" else done or stored

        if what != "never claimed":
            await world.claim("r1", "t1")
        if what in ("ended", "cancelled"):
            await world.runs.change("r1", end)
        await asyncio.sleep(TRUST / SECOND + 1)
        if what == "taken over":
            await world.claim("r1", "t1b")
        assert await semaphores.enter("k", 1, "r2", "t2") is not None

    run(main())


def test_a_limit_that_was_lowered_lets_none_in_until_enough_have_left(world: World, run: Go) -> None:
    async def main() -> None:
        semaphores = world.semaphores()
        for number in range(3):
            await semaphores.enter("k", 3, f"r{number}", f"t{number}")
        for number, free in ((0, False), (1, False), (2, True)):
            await semaphores.leave("k", f"t{number}")
            assert (await semaphores.enter("k", 1, "r9", "t9") is not None) is free

    run(main())
