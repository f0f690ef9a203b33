"""A pull queue whose store aborts, answers late or not at all: each write counts once."""

import asyncio

import pytest

from tally.clock import SECOND
from tally.errors import BackendError, Refused, Unavailable
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run

LOST = Unavailable("no reply", status="DEADLINE_EXCEEDED")
ABORTED = Refused("aborted", status="ABORTED")


def test_a_commit_that_contention_aborts_is_tried_again() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease()
        world.store.before = [ABORTED] * 5
        await queue.complete(lease)
        assert (await queue.stats()).tasks == 0
        world.store.before = [ABORTED] * 5
        assert (await queue.add(Task(name="b"))).status == "added"
        await asyncio.sleep(86_401)  # the tombstone of a is to be taken over
        world.store.before = [ABORTED] * 100
        assert (await queue.add_many([Task(name="a")]))[0].status == "unknown"
        world.store.before = [ABORTED] * 5
        assert (await queue.add(Task(name="a"))).status == "added"

    run(body)


@pytest.mark.parametrize("error", [LOST, ABORTED], ids=["lost reply", "aborted after"])
@pytest.mark.parametrize("call", ["add", "lease", "extend", "complete", "release", "reject", "delete"])
def test_a_write_that_was_applied_while_its_reply_was_lost_counts_once(call: str, error: BackendError) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="a"), Task(name="b")])
        if call == "add":
            world.store.after = [error]
            assert [each.status for each in await queue.add_many([Task(name="c"), Task()])] == ["added", "added"]
            return
        if call == "delete":
            world.store.after = [error]
            assert await queue.delete("a")
            assert await queue.peek("a") is None
            return
        world.store.after = [error] * 2 if call == "lease" else []
        leases = await queue.lease(10, seconds=60)
        assert {lease.name for lease in leases} == {"a", "b"}
        assert {lease.attempt for lease in leases} == {1}
        world.store.after = [error]
        match call:
            case "extend":
                until = world.clock.now() + 90 * SECOND
                assert (await queue.extend(leases[0], 90)).expires_at == until
            case "complete":
                assert await queue.complete_many(leases) == ["done", "done"]
            case "release":
                assert await queue.release(leases[0]) == "released"
                assert len(await queue.lease()) == 1
            case "reject":
                await queue.reject(leases[0], "x")
                assert (await queue.stats()).dead == 1

    run(body)


def test_a_reply_lost_and_the_task_done_before_it_is_looked_for_is_not_added_twice() -> None:
    async def body(world: World) -> None:
        queue, worker = world.queue(), world.queue()
        await queue.resume()  # makes the queue
        world.store.after = [LOST]
        world.store.latency = 1.0
        adding = asyncio.create_task(queue.add(Task.text("once")))
        (lease,) = await worker.lease(wait=10)
        await worker.complete(lease)
        assert (await adding).status == "added"
        await asyncio.sleep(100)
        assert await worker.lease() == []

    run(body)


def test_a_store_that_never_answers_is_unknown_to_add_many_and_raised_by_add() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.resume()  # makes the queue
        world.store.before = [LOST] * 100
        assert [each.status for each in await queue.add_many([Task(name="a")])] == ["unknown"]
        with pytest.raises(Unavailable, match="task a"):
            await queue.add(Task(name="a"))

    run(body)
