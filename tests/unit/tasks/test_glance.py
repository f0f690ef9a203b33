"""What a lease costs when there is nothing for it, and that what comes then is found by the very next one."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tally.clock import SECOND
from tally.ports import Page, Query, Upsert
from tally.tasks import keys
from tally.tasks.leasing import OLDEST, Tag
from tally.tasks.queue import PullQueue
from tally.tasks.row import FORMAT
from tally.tasks.start_rate import StartRate
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run

SHARDS = 16


def named(shard: int) -> str:
    """Return a name whose task lies in a shard."""
    return next(name for name in map(str, range(10_000)) if keys.task("q", name, SHARDS).shard == shard)


async def idle(world: World, tasks: Iterable[Task] = ()) -> PullQueue:
    """Return a queue with tasks that are not due, as a lessee has it that found nothing."""
    queue = world.queue()
    await queue.add_many(tasks)
    assert await queue.lease(10) == []
    world.store.scanned.clear()
    return queue


@pytest.mark.parametrize("tag", [None, OLDEST])
@pytest.mark.parametrize("delayed", [0, 1, SHARDS - 1])
def test_an_idle_lessee_asks_a_queue_of_few_tasks_by_one_query(tag: Tag, delayed: int) -> None:
    async def body(world: World) -> None:
        queue = await idle(world, [Task(delay=100)] * delayed)
        for polls in range(1, 4):
            assert await queue.lease(10, tag=tag) == []
            assert world.store.scanned == [delayed] * polls

    run(body)


def test_a_queue_with_a_rate_is_asked_by_one_query_too() -> None:
    async def body(world: World) -> None:
        queue = await idle(world)
        await queue.set_rate(StartRate(per_second=10, burst=10))
        assert await queue.lease(10) == []
        assert world.store.scanned == [0]

    run(body)


@pytest.mark.parametrize(("tag", "others"), [(None, 5), (None, 100), (OLDEST, 5), ("t", 5)])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_comes_is_found_by_the_next_lease_in_whichever_shard_it_is(tag: Tag, others: int, shard: int) -> None:
    async def body(world: World) -> None:
        queue = await idle(world, [Task(name=f"later-{n}", delay=1_000) for n in range(others)])
        await world.queue().add(Task(name=named(shard), tag="t"))
        assert [lease.name for lease in await queue.lease(10, tag=tag)] == [named(shard)]

    run(body)


def test_a_task_is_found_once_its_time_has_come_and_not_before() -> None:
    async def body(world: World) -> None:
        queue = await idle(world, [Task(name=named(9), delay=10), Task(name=named(2), delay=20)])
        for seconds, found in ((9.9, []), (0.1, [named(9)]), (9.9, []), (0.1, [named(2)])):
            await asyncio.sleep(seconds)
            assert [lease.name for lease in await queue.lease(10, seconds=1_000)] == found

    run(body)


def test_of_a_fuller_queue_the_shards_past_those_seen_are_asked_and_no_glance_is_wasted_for_a_while() -> None:
    async def body(world: World) -> None:
        queue = await idle(world, [Task(name=f"later-{n}", delay=1_000) for n in range(200)])
        assert await queue.lease(10) == []
        first = len(world.store.scanned)
        assert world.store.scanned[0] == SHARDS
        assert 1 < first <= SHARDS
        assert await queue.lease(10) == []
        assert world.store.scanned[first:] == [0] * SHARDS
        await world.queue().add(Task(name=named(15)))
        assert [lease.name for lease in await queue.lease(10)] == [named(15)]
        assert await queue.lease(10) == []
        await asyncio.sleep(30)
        world.store.scanned.clear()
        assert await queue.lease(10) == []
        assert world.store.scanned[0] == SHARDS

    run(body)


def test_rows_of_a_newer_format_hide_nothing() -> None:
    async def body(world: World) -> None:
        queue = await idle(world, [Task(name=named(shard), delay=1_000) for shard in range(3)])
        place = keys.task("q", named(0), SHARDS)
        (newer,) = (await world.fake.get([place.key])).found
        properties = {**newer.properties, "v": FORMAT + 1, keys.DUE: "q:00:another-way"}
        await world.fake.commit([Upsert(replace(newer, properties=properties))])
        await world.queue().add(Task(name=named(12)))
        assert [lease.name for lease in await queue.lease(10)] == [named(12)]

    run(body)


def test_a_store_that_answers_in_small_pages_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: World) -> None:
        queue = await idle(world, [Task(name=f"later-{n}", delay=1_000) for n in range(8)])
        ask = world.fake.query

        async def short(query: Query) -> Page:
            return await ask(replace(query, limit=min(query.limit, 3)))

        monkeypatch.setattr(world.fake, "query", short)
        assert await queue.lease(10) == []
        assert sum(world.store.scanned) == 8
        await world.queue().add(Task(name=named(15)))
        assert [lease.name for lease in await queue.lease(10)] == [named(15)]

    run(body)


def test_a_lease_that_ends_unheard_is_found_by_an_idle_lessee() -> None:
    async def body(world: World) -> None:
        await world.queue().add(Task(name=named(7)))
        assert await world.queue().lease(1, seconds=30)
        queue = await idle(world)
        begun = world.clock.now()
        assert [lease.attempt for lease in await queue.lease(1, wait=60)] == [2]
        assert 30 * SECOND <= world.clock.now() - begun <= 31.1 * SECOND

    run(body)
