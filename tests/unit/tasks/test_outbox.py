import asyncio
from random import Random

import pytest

from tally import limits
from tally.errors import InvalidInput, NotFound, Refused, TooLarge, Unavailable
from tally.ports import Entity, Insert
from tally.tasks.outbox import Outbox
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task, Unique
from tests.unit.tasks.pull import World, run

ORDER = Insert(Entity(key=(("Order", "1"),), properties={}))


def outbox(world: World) -> Outbox:
    queues: dict[str, PullQueue] = {}

    def queue(name: str) -> PullQueue:
        if name == "none":
            raise NotFound(f"no queue {name}")
        return queues.setdefault(name, world.queue(name))

    return Outbox(world.store, queue, clock=world.clock, random=Random(5))


def test_a_task_exists_if_and_only_if_the_commit_does() -> None:
    async def body(world: World) -> None:
        box, queue = outbox(world), world.queue("mail")
        sent = box.entry("mail", Task.json({"to": 7}, tag="t"))
        await world.store.commit([ORDER, sent.write])
        unsent = box.entry("mail", Task())
        with pytest.raises(Refused):
            await world.store.commit([ORDER, unsent.write])
        assert await box.drain([sent.id, unsent.id]) == 1
        (lease,) = await queue.lease(10)
        assert (lease.task.value(), lease.task.tag) == ({"to": 7}, "t")
        assert not list(world.fake.of_kind("TaskOutbox"))

    run(body)


def test_an_outbox_in_which_nothing_waits_is_swept_by_one_query() -> None:
    async def body(world: World) -> None:
        box = outbox(world)
        await world.store.commit([(parked := box.entry("none", Task())).write])
        assert await box.drain([parked.id]) == 0
        assert [each.id async for each in box.parked()] == [parked.id]
        world.store.scanned.clear()
        assert await box.sweep() == 0
        assert world.store.scanned == [0]

    run(body)


def test_draining_twice_adds_once_even_when_the_first_died_half_way() -> None:
    async def body(world: World) -> None:
        box, queue = outbox(world), world.queue("mail")
        sent = box.entry("mail", Task.text("once"))
        await world.store.commit([sent.write])
        await queue.resume()  # makes the queue
        world.store.before = [None, Unavailable("down")]  # the task is added, the entry is not deleted
        assert await box.drain([sent.id]) == 0
        await queue.complete((await queue.lease())[0])
        assert await box.drain([sent.id]) == 1
        assert await queue.lease() == []
        assert await box.drain([]) == 0

    run(body)


def test_the_sweeper_takes_what_its_committer_left() -> None:
    async def body(world: World) -> None:
        box, queue = outbox(world), world.queue("mail")
        for n in range(130):
            await world.store.commit([box.entry("mail", Task(name=f"n-{n}", delay=60)).write])
        assert await box.sweep() == 0  # still its committer's
        await asyncio.sleep(6)
        assert await box.sweep() == 130
        assert await box.sweep() == 0
        assert await queue.lease(1_000) == []
        await asyncio.sleep(54.1)
        assert len(await queue.lease(1_000)) == 130  # the delay counts from the commit, not from the sweep

    run(body)


def test_what_no_queue_takes_is_parked_with_the_reason_and_does_not_stop_the_rest() -> None:
    async def body(world: World) -> None:
        box = outbox(world)
        await world.store.commit([box.entry("none", Task()).write, box.entry("mail", Task()).write])
        await asyncio.sleep(6)
        assert await box.sweep() == 1
        assert [(parked.queue, parked.error) async for parked in box.parked()] == [("none", "no queue none")]
        assert await box.sweep() == 0

    run(body)


def test_what_is_parked_is_replayed_once_its_queue_takes_it_and_dropped_only_on_demand() -> None:
    async def body(world: World) -> None:
        known: list[str] = []

        def queue(name: str) -> PullQueue:
            if name not in known:
                raise NotFound(f"no queue {name}")
            return world.queue(name)

        box = Outbox(world.store, queue, clock=world.clock, random=Random(5))
        for text in ("a", "b"):
            await world.store.commit([box.entry("new", Task.text(text)).write])
        await asyncio.sleep(6)
        assert await box.sweep() == 0
        first, second = [parked async for parked in box.parked()]
        assert not await box.replay(first.id)
        assert len([parked async for parked in box.parked()]) == 2, "parked again"
        known.append("new")
        assert await box.replay(first.id)
        await box.drop(second.id)
        assert [parked async for parked in box.parked()] == []
        assert [lease.task.payload for lease in await world.queue("new").lease(10)] == [first.payload]
        for act in (box.replay, box.drop):
            with pytest.raises(NotFound, match=first.id):
                await act(first.id)

    run(body)


def test_names_and_unique_keys_are_kept() -> None:
    async def body(world: World) -> None:
        box, queue = outbox(world), world.queue("mail")
        await queue.add(Task(name="a"))
        sent = [box.entry("mail", Task(name="a")), box.entry("mail", Task(unique=Unique(period=60, key="k")))]
        await world.store.commit([each.write for each in sent])
        assert await box.drain(each.id for each in sent) == 2
        assert (await queue.stats()).tasks == 2
        assert (await queue.add(Task(unique=Unique(period=60, key="k")))).status == "exists"

    run(body)


def test_a_wrong_task_is_refused_before_the_commit() -> None:
    async def body(world: World) -> None:
        with pytest.raises(TooLarge):
            outbox(world).entry("mail", Task(payload=bytes(limits.PULL_TASK_BYTES + 1)))
        with pytest.raises(InvalidInput, match="queue name"):
            outbox(world).entry("a b", Task())

    run(body)


@pytest.mark.parametrize("act", ["drop", "replay"])
def test_an_entry_that_is_parked_anew_meanwhile_is_left_alone(act: str) -> None:
    async def body(world: World) -> None:
        box = outbox(world)
        sent = box.entry("none", Task())
        await world.store.commit([sent.write])
        await box.drain([sent.id])
        await asyncio.sleep(1)
        world.store.meanwhile = [lambda: box.replay(sent.id)]
        with pytest.raises(Refused):
            await (box.drop(sent.id) if act == "drop" else box.replay(sent.id))
        (parked,) = [parked async for parked in box.parked()]
        assert (parked.id, parked.at) == (sent.id, world.clock.now())

    run(body)


def test_an_entry_that_is_replayed_while_another_parks_it_stays_waiting() -> None:
    async def body(world: World) -> None:
        box = outbox(world)
        sent = box.entry("none", Task())
        await world.store.commit([sent.write])

        async def another() -> None:
            await box.drain([sent.id])  # parks it
            await box.replay(sent.id)  # parks it anew
            world.store.before = [None, Unavailable("down")]  # its process dies once it waits again
            await box.replay(sent.id)

        world.store.meanwhile = [another]
        await box.drain([sent.id])
        assert [parked async for parked in box.parked()] == []

    run(body)


def test_what_is_not_parked_is_neither_replayed_nor_dropped() -> None:
    async def body(world: World) -> None:
        box = outbox(world)
        sent = box.entry("mail", Task.text("waits"))
        await world.store.commit([sent.write])
        for act in (box.replay, box.drop):
            with pytest.raises(NotFound, match=sent.id):
                await act(sent.id)
        assert await box.drain([sent.id]) == 1

    run(body)
