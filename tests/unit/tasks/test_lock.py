import asyncio

import pytest

from tally.errors import Busy, LeaseExpired
from tally.tasks.lock import Lock
from tests.unit.tasks.pull import World, run


class Register:
    """What a lock protects: it refuses a writer whose fence is below the highest that it has seen."""

    def __init__(self) -> None:
        self.fence = 0
        self.value = ""

    def write(self, value: str, fence: int) -> bool:
        if fence < self.fence:
            return False
        self.fence, self.value = fence, value
        return True


def lock(world: World, name: str = "report") -> Lock:
    return Lock(world.queue("locks"), name)


def test_one_holds_the_lock_and_the_next_gets_it_when_it_is_released() -> None:
    async def body(world: World) -> None:
        first, second = lock(world), lock(world)
        hold = await first.acquire(60)
        with pytest.raises(Busy, match="report"):
            await second.acquire(60, wait=2)
        await lock(world, "other").acquire(60)
        waiting = asyncio.create_task(second.acquire(60, wait=30))
        await asyncio.sleep(3)
        await first.release(hold)
        assert (await waiting).attempt > hold.attempt

    run(body)


def test_a_zombie_writes_nothing_after_another_took_the_lock() -> None:
    async def body(world: World) -> None:
        register = Register()
        zombie, heir = lock(world), lock(world)
        old = await zombie.acquire(10)
        assert register.write("zombie's first", old.attempt)
        await asyncio.sleep(11)  # the zombie is suspended, and its time runs out
        new = await heir.acquire(10)
        assert register.write("heir's", new.attempt)
        assert not register.write("zombie's second", old.attempt)
        assert register.value == "heir's"
        with pytest.raises(LeaseExpired):
            await zombie.extend(old, 10)
        await zombie.release(old)
        with pytest.raises(Busy):
            await lock(world).acquire(10)  # the zombie's release freed nothing

    run(body)


def test_a_holder_that_extends_keeps_the_lock() -> None:
    async def body(world: World) -> None:
        held = lock(world)
        hold = await held.acquire(10)
        for _ in range(5):
            await asyncio.sleep(8)
            hold = await held.extend(hold, 10)
        with pytest.raises(Busy):
            await lock(world).acquire(10)

    run(body)
