"""Embedded's push queues: the Dispatcher port on a store, and the loop that sends, in virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tally.clock import SECOND
from tally.errors import InvalidInput, Refused
from tally.ports import Committed, Delete, HttpTask, Update, Write
from tally.retry import RetryPolicy
from tally.tasks.dispatch import StoreDispatcher
from tally.tasks.push_entities import TOMBSTONE, entry_of, task_of, to_entity, update
from tally.tasks.push_loop import LEASE, PushLoop
from tally.tasks.rate import RateLimits
from tally.testing.clock import VirtualClock
from tally.testing.process import Process
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.dispatcher = StoreDispatcher(self.store, self.clock)
        self.stop = asyncio.Event()
        self.sent: list[tuple[float, str]] = []
        self.statuses: list[int] = []
        self.takes = 0.0
        self.at_once = self.most = 0
        self.begin = 0

    async def send(self, task: HttpTask) -> int:
        self.sent.append(((self.clock.now() - self.begin) / SECOND, task.id))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.at_once -= 1
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 0:
            raise OSError("connection refused")
        if status == 400:
            raise InvalidInput("no good")
        return status

    def loop(self, seed: int = 1, limits: dict[str, RateLimits] | None = None) -> PushLoop:
        return PushLoop(self.store, self.send, clock=self.clock, random=Random(seed), limits=limits)

    async def work(self, seconds: float, **limits: RateLimits) -> None:
        self.begin = self.clock.now()
        self.stop.clear()
        working = asyncio.ensure_future(self.loop(1, limits).run(self.stop))
        await asyncio.sleep(seconds)
        self.stop.set()
        await working

    async def add(self, task_id: str, *, delay: float = 0, **options: Any) -> None:
        at = self.clock.now() + round(delay * SECOND)
        await self.dispatcher.create("q", HttpTask(id=task_id, url="http://a/", headers={}, at=at, **options))

    def times(self) -> list[float]:
        return [round(at) for at, _ in self.sent]


@pytest.fixture
def world() -> World:
    return World()


def test_tasks_are_sent_at_their_times_and_once(world: World, run: Go) -> None:
    async def main() -> None:
        for task_id, delay in (("c", 30), ("a", 0), ("b", 10)):
            await world.add(task_id, delay=delay)
        assert (await world.dispatcher.stats("q")).tasks == 3
        await world.work(60)
        assert [(round(at), task_id) for at, task_id in world.sent] == [(0, "a"), (10, "b"), (30, "c")]
        assert (await world.dispatcher.stats("q")).tasks == 0

    run(main())


@pytest.mark.parametrize(
    ("statuses", "times"),
    [
        ([200], [0]),
        ([204], [0]),
        ([500, 200], [0, 10]),
        ([404, 200], [0, 10]),
        ([302, 200], [0, 10]),
        ([429, 503, 200], [0, 10, 30]),
        ([0, 200], [0, 10]),
        ([400, 200], [0, 10]),
        ([500, 500, 500, 500, 500], [0, 10, 30]),
    ],
)
def test_whatever_is_not_2xx_is_sent_again_by_the_policy(
    world: World, run: Go, statuses: list[int], times: list[int]
) -> None:
    async def main() -> None:
        world.statuses = statuses
        await world.add("t", retry=RetryPolicy(max_attempts=3, min_backoff=10, max_doublings=5))
        await world.work(200)
        assert world.times() == times
        assert (await world.dispatcher.stats("q")).tasks == 0

    run(main())


def test_an_attempt_past_its_deadline_counts_as_failed(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 100
        await world.add("t", deadline=20.0, retry=RetryPolicy(max_attempts=2, min_backoff=5))
        await world.work(60)
        assert world.times() == [0, 25]

    run(main())


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


def test_tombstones_are_swept(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("t")
        await world.work(1)
        await asyncio.sleep(TOMBSTONE / SECOND)
        await world.work(1)
        assert not world.store.of_kind("PushTask")

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


def test_rate_and_concurrency_are_kept(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 1.0
        for number in range(30):
            await world.add(f"t{number}")
        await world.work(60, q=RateLimits(per_second=5, burst=1, concurrent=3))
        assert len(world.sent) == 30
        assert world.most == 3
        assert world.sent[-1][0] >= 9

    run(main())


def test_one_loop_at_a_time_sends_and_the_next_takes_over_from_a_dead_one(world: World, run: Go) -> None:
    async def main() -> None:
        world.begin = world.clock.now()
        first = Process("first")
        first.spawn(world.loop(1).run(world.stop))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(world.loop(2).run(world.stop))
        for number in range(20):
            await world.add(f"t{number}")
        await asyncio.sleep(5)
        assert len(world.sent) == 20
        first.kill()
        await world.add("late")
        await asyncio.sleep(LEASE / SECOND + 1)
        assert len(world.sent) == 21
        world.stop.set()
        await second

    run(main())


def test_what_was_out_when_the_process_died_is_sent_again(world: World, run: Go) -> None:
    async def main() -> None:
        world.takes = 5
        await world.add("t")
        first = Process("first")
        first.spawn(world.loop(1).run(world.stop))
        await asyncio.sleep(1)
        first.kill()
        await world.work(30)
        assert [task_id for _, task_id in world.sent] == ["t", "t"]

    run(main())


def test_a_task_is_forced_past_its_time_a_pause_and_the_rate(world: World, run: Go) -> None:
    async def main() -> None:
        await world.dispatcher.pause("q")
        await world.add("far", delay=3_000)
        await world.add("due")
        working = asyncio.ensure_future(world.work(60, q=RateLimits(per_second=0)))
        await asyncio.sleep(10)
        assert await world.dispatcher.run("q", "due")
        await asyncio.sleep(10)
        assert await world.dispatcher.run("q", "far")
        await working
        assert [(round(at), task_id) for at, task_id in world.sent] == [(10, "due"), (20, "far")]
        assert (await world.dispatcher.stats("q")).tasks == 0

    run(main())


def test_a_forced_task_that_fails_is_tried_again_by_its_policy(world: World, run: Go) -> None:
    async def main() -> None:
        world.statuses = [500, 500]
        await world.add("t", delay=3_000, retry=RetryPolicy(min_backoff=10, max_doublings=5))
        await world.dispatcher.run("q", "t")
        await world.work(200)
        assert world.times() == [0, 10, 30]

    run(main())


@pytest.mark.parametrize(("status", "sent"), [(200, [0]), (500, [0, 20])])
def test_a_task_forced_while_it_is_out_is_sent_again_at_once_only_if_it_fails(
    world: World, run: Go, status: int, sent: list[int]
) -> None:
    async def main() -> None:
        world.takes = 20
        world.statuses = [status]
        await world.add("t", retry=RetryPolicy(min_backoff=100))
        working = asyncio.ensure_future(world.work(200))
        await asyncio.sleep(10)
        assert await world.dispatcher.run("q", "t")
        await working
        assert world.times() == sent
        assert (await world.dispatcher.stats("q")).tasks == 0

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


def test_a_loop_keeps_its_own_lease_and_sends_without_a_gap(world: World, run: Go) -> None:
    async def main() -> None:
        for second in range(30):
            await world.add(f"t{second}", delay=second)
        await world.work(35)
        assert world.times() == list(range(30))

    run(main())


def test_a_sweep_leaves_a_name_that_is_taken_again_meanwhile(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("t")
        await world.work(1)
        await asyncio.sleep(TOMBSTONE / SECOND)
        commit, refused = world.store.commit, list[Refused]()

        async def late(writes: Sequence[Write]) -> Committed:
            if any(isinstance(write, Delete) for write in writes):
                await world.add("t", delay=30)
            try:
                return await commit(writes)
            except Refused as error:
                refused.append(error)
                raise

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.store, "commit", late)
            await world.work(5)
        assert len(refused) == 1
        await world.work(40)
        assert len(world.sent) == 2, "the new task is lost"

    run(main())
