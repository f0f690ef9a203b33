"""Push tasks as embedded keeps them in its store: named, paused, deleted, purged, while attempts of them end."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tally.clock import SECOND
from tally.errors import Refused
from tally.ports import Committed, Update, Write
from tally.tasks.dispatch import StoreDispatcher
from tally.tasks.push_entities import TOMBSTONE, entry_of, task_of, to_entity, update
from tally.testing.clock import VirtualClock
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.dispatching import World


@pytest.fixture
def world() -> World:
    return World()


def test_a_name_stays_taken_for_a_while(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("t")
        with pytest.raises(Refused) as caught:
            await world.add("t")
        assert caught.value.status == "ALREADY_EXISTS"
        await world.work(1)
        with pytest.raises(Refused):
            await world.add("t")
        await asyncio.sleep(TOMBSTONE / SECOND)
        await world.add("t")

    run(main())


def test_deleted_and_purged_tasks_are_not_sent(world: World, run: Go) -> None:
    async def main() -> None:
        for task_id in "abc":
            await world.add(task_id, delay=5)
        assert await world.dispatcher.delete("q", "a")
        assert not await world.dispatcher.delete("q", "a")
        assert not await world.dispatcher.delete("q", "never")
        await world.dispatcher.purge("q")
        await world.work(10)
        assert world.sent == []

    run(main())


def test_a_paused_queue_sends_nothing_until_it_is_resumed(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("t")
        await world.dispatcher.pause("q")
        assert (await world.dispatcher.stats("q")).paused
        working = asyncio.ensure_future(world.work(30))
        await asyncio.sleep(10)
        await world.dispatcher.resume("q")
        await working
        assert world.times() == [10]

    run(main())


class Overtaken:
    """A store on which an attempt of each task ends just before the first write that somebody else makes to it."""

    def __init__(self, store: FakeStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.left = 0
        self.get, self.query = store.get, store.query

    async def commit(self, writes: Sequence[Write]) -> Committed:
        for write in writes:
            if isinstance(write, Update) and self.left:
                self.left -= 1
                (stored,) = (await self._store.get([write.entity.key])).found
                entry = replace(entry_of(stored), eta=self._clock.now(), dispatches=1)
                ended = to_entity("q", task_of(stored), entry)
                await self._store.commit([update(ended, stored.version)])
        return await self._store.commit(writes)


def test_deleting_and_purging_take_tasks_whose_attempts_end_meanwhile(world: World, run: Go) -> None:
    async def main() -> None:
        for number in range(5):
            await world.add(f"t{number}", delay=5)
        store = Overtaken(world.store, world.clock)
        dispatcher = StoreDispatcher(store, world.clock)
        store.left = 3
        assert await dispatcher.delete("q", "t0")
        store.left = 6
        await dispatcher.purge("q")
        assert (await world.dispatcher.stats("q")).tasks == 0
        await world.work(10)
        assert world.sent == []

    run(main())


def test_a_task_that_changes_all_the_time_is_not_waited_for_for_ever(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("t", delay=5)
        store = Overtaken(world.store, world.clock)
        store.left = 1_000
        with pytest.raises(Refused):
            await StoreDispatcher(store, world.clock).delete("q", "t")

    run(main())


def test_a_purge_leaves_what_was_added_after_it_began(world: World, run: Go) -> None:
    class Adding(Overtaken):
        async def commit(self, writes: Sequence[Write]) -> Committed:
            if self.left:
                self.left -= 1
                await asyncio.sleep(0.001)
                await world.add(f"late{self.left}", delay=50)
            return await super().commit(writes)

    async def main() -> None:
        await world.add("t", delay=5)
        store = Adding(world.store, world.clock)
        store.left = 1
        await StoreDispatcher(store, world.clock).purge("q")
        assert (await world.dispatcher.stats("q")).tasks == 1

    run(main())
