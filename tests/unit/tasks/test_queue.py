"""Tasks of a pull queue as its users see them: added, shown, paused, deleted; on a fake store and virtual time."""

import asyncio
from collections import Counter

import pytest

from tally import limits
from tally.clock import SECOND, to_datetime
from tally.errors import Conflict, InvalidInput, LeaseExpired, Refused, TooLarge
from tally.ports import Entity, Insert
from tally.retry import RetryPolicy
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run


def test_a_task_is_leased_completed_and_gone() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        assert (await queue.add(Task.json({"to": 7}, name="a", tag="mail"))).status == "added"
        (lease,) = await queue.lease(10, seconds=30)
        assert (lease.name, lease.attempt, lease.task.value(), lease.task.tag) == ("a", 1, {"to": 7}, "mail")
        assert lease.expires_at == world.clock.now() + 30 * SECOND
        assert await queue.lease(10) == []
        await queue.complete(lease)
        await asyncio.sleep(60)
        assert await queue.lease(10) == []
        assert (await queue.stats()).tasks == 0

    run(body)


def test_add_many_gives_one_outcome_a_task_in_order() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="old"))
        await queue.add(Task(name="finished"))
        leases = await queue.lease(10)
        await queue.complete(next(lease for lease in leases if lease.name == "finished"))
        outcomes = await queue.add_many(
            [
                Task(name="new"),
                Task(name="old"),
                Task(name="finished"),
                Task(payload=bytes(limits.PULL_TASK_BYTES + 1)),
                Task(name="new"),
                Task(payload=bytes(limits.PULL_TASK_BYTES)),
            ]
        )
        statuses = [outcome.status for outcome in outcomes]
        assert statuses == ["added", "exists", "tombstoned", "invalid", "exists", "added"]
        assert "900001 bytes" in (outcomes[3].error or "")
        assert await queue.add_many([]) == []

    run(body)


def test_a_large_bulk_is_cut_into_commits_within_the_limits() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        tasks = [Task(payload=bytes(5_000 if n % 7 == 0 else 10), name=f"n-{n}") for n in range(1_300)]
        assert {outcome.status for outcome in await queue.add_many(tasks)} == {"added"}
        assert max(len(commit) for commit in world.store.commits) <= limits.COMMIT_MUTATIONS
        assert (await queue.stats()).tasks == 1_300
        big = await queue.add_many(Task(payload=bytes(limits.PULL_TASK_BYTES)) for _ in range(5))
        assert [outcome.status for outcome in big] == ["added"] * 5
        with pytest.raises(TooLarge, match="900001 bytes"):
            await queue.add(Task(payload=bytes(limits.PULL_TASK_BYTES + 1)))

    run(body)


def test_one_shard_leases_in_the_order_of_eta_and_name() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.add_many([Task(name="c"), Task(name="a"), Task(name="b")])
        await queue.add_many([Task(name="late", delay=5), Task(name="soon", delay=3), Task(name="future", delay=99)])
        await asyncio.sleep(10)
        assert [lease.name for lease in await queue.lease(2)] == ["a", "b"]
        assert [lease.name for lease in await queue.lease(10)] == ["c", "soon", "late"]

    run(body)


@pytest.mark.parametrize("days", [29, 31, 400])
def test_a_task_may_lie_as_far_ahead_as_one_likes(days: int) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a", eta=to_datetime(world.clock.now() + days * 86_400 * SECOND)))
        await asyncio.sleep(days * 86_400 - 1)
        assert await queue.lease() == []
        await asyncio.sleep(1)
        assert len(await queue.lease()) == 1

    run(body)


def test_no_log_line_holds_a_payload_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=1))
        await queue.add_many([Task.text("secret", name="a"), Task.text("secret", name="b")])
        for lease in await queue.lease(10, seconds=5):
            if lease.name == "a":
                await queue.release(lease, error="secret")
        await asyncio.sleep(6)
        await queue.lease()

    with caplog.at_level("INFO", "tally"):
        run(body)
    lines = [record for record in caplog.records if record.getMessage() == "task-dead"]
    assert len(lines) == 2
    assert "secret" not in "".join(str(record.__dict__) for record in lines)


def test_delete_by_name_takes_the_task_from_its_holder() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="a", payload=bytes(10_000)), Task(name="b")])
        (lease,) = await queue.lease()
        assert await queue.delete(lease.name)
        assert not await queue.delete(lease.name)
        assert not await queue.delete("never")
        with pytest.raises(LeaseExpired):
            await queue.complete(lease)
        assert (await queue.stats()).executed_last_minute == 0

    run(body)


def test_purge_deletes_what_was_there_and_nothing_that_came_later() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task(payload=bytes(5_000 if n % 2 else 1)) for n in range(600))
        await queue.lease(50)
        world.store.latency = 0.02
        purging = asyncio.create_task(queue.purge())
        await asyncio.sleep(0.05)
        await world.queue().add_many(Task(name=f"new-{n}") for n in range(40))
        assert await purging == 600
        assert len(await queue.list(limit=1_000)) == 40
        assert {entity.key[-1][0] for entity in world.fake.entities.values()} == {"TaskQueue", "Task"}

    run(body)


def test_a_paused_queue_leases_nothing_and_lets_holders_finish() -> None:
    async def body(world: World) -> None:
        queue, other = world.queue(), world.queue()
        await queue.add_many([Task(name="a"), Task(name="b")])
        (held,) = await other.lease()
        await queue.pause()
        assert await queue.lease(10) == []
        await asyncio.sleep(1.1)
        assert await other.lease(10) == []
        await other.complete(await other.extend(held, 60))
        assert (await queue.stats()).paused
        waiting = asyncio.create_task(other.lease(10, wait=20))
        await asyncio.sleep(3)
        await queue.resume()
        assert len(await waiting) == 1

    run(body)


def test_stats_count_the_queue() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        assert (await queue.stats()).oldest_eta is None
        start = world.clock.now()
        await queue.add_many(Task() for _ in range(30))
        await queue.add(Task(delay=500))
        await queue.complete_many(await queue.lease(10, seconds=300))
        await queue.lease(5, seconds=300)
        stats = await queue.stats()
        assert (stats.tasks, stats.in_flight, stats.executed_last_minute, stats.dead) == (21, 5, 10, 0)
        assert (stats.oldest_eta, stats.enforced_rate, stats.truncated) == (start, None, False)
        await asyncio.sleep(61)
        assert (await queue.stats()).executed_last_minute == 0
        await asyncio.sleep(300)
        assert (await queue.stats()).in_flight == 0

    run(body)


def test_peek_and_list_show_tasks_without_leasing_them() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a", payload=bytes(5_000)))
        await queue.add(Task.text("hé", name="b", delay=60))
        info = await queue.peek("a")
        assert info is not None
        assert (info.state, info.size, len(info.task.payload), info.attempts) == ("waiting", 5_000, 5_000, 0)
        assert [(each.name, each.state) for each in await queue.list()] == [("a", "waiting"), ("b", "delayed")]
        assert await queue.list("leased") == []
        await queue.lease()
        assert [each.name for each in await queue.list("leased")] == ["a"]
        assert await queue.peek("c") is None

    run(body)


def test_a_payload_is_never_shown_in_a_repr() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task.text("secret"))
        (lease,) = await queue.lease()
        assert "secret" not in repr(lease) + repr(lease.task) + repr(lease.row)

    run(body)


def test_the_number_of_shards_is_kept_and_checked() -> None:
    async def body(world: World) -> None:
        await world.queue(shards=4).add(Task(name="a"))
        assert len(await world.queue().lease(10)) == 1
        with pytest.raises(Conflict, match="4 shards, not 8"):
            await world.queue(shards=8).add(Task())
        with pytest.raises(InvalidInput, match="shards is 65"):
            world.queue(shards=65)

    run(body)


def test_prepared_tasks_are_in_the_callers_commit_or_not_at_all() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        order = Insert(Entity(key=(("Order", "1"),), properties={}))
        prepared = await queue.prepare([Task.text("ship", name="ship-1"), Task(payload=bytes(9_000))])
        await world.store.commit([order, *prepared.writes])
        assert {lease.name for lease in await queue.lease(10)} == set(prepared.names)
        again = await queue.prepare([Task(name="other")])
        with pytest.raises(Refused):
            await world.store.commit([order, *again.writes])
        assert await queue.peek("other") is None
        with pytest.raises(InvalidInput, match="given twice"):
            await queue.prepare([Task(name="x"), Task(name="x")])

    run(body)


def test_run_now_hastens_what_waits_and_leaves_what_is_leased_or_dead() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="later", delay=600), Task(name="held"), Task(name="bad")])
        held, bad = sorted(await queue.lease(10), key=lambda lease: lease.name, reverse=True)
        await queue.reject(bad, "bad")
        assert [await queue.run_now(name) for name in ("later", "held", "bad", "none")] == [True, False, False, False]
        assert [lease.name for lease in await queue.lease(10)] == ["later"]
        await queue.complete(held)

    run(body)


def test_what_is_indexed_is_spread_over_the_shards_and_holds_nothing_of_the_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task.text("secret", tag="t", delay=n) for n in range(400))
        await queue.complete_many(await queue.lease(100))
        entities = list(world.fake.of_kind("Task"))
        assert {name for entity in entities for name in entity.indexed} == {"due", "tagged", "phase", "gone"}
        for name in ("due", "tagged"):
            begins = Counter(str(e.properties[name])[:5] for e in entities if name in e.indexed)
            assert len(begins) == 16 and max(begins.values()) < 60, f"{name} grows in one place: {begins}"
        assert not any("secret" in str(entity.properties[name]) for entity in entities for name in entity.indexed)

    run(body)


def test_tags_are_found_by_one_query_each_and_their_tasks_are_counted() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        assert await queue.tags() == []
        assert await queue.waiting("a", 10) is None
        begun = world.clock.now()
        for number in range(40):
            await queue.add(Task(tag="abc"[number % 3]))
            await asyncio.sleep(1)
        await queue.add_many(Task() for _ in range(10))
        await queue.lease(2, tag="b")
        before = world.store.calls
        assert sorted(await queue.tags()) == ["a", "b", "c"]
        assert world.store.calls - before <= 5
        waiting = await queue.waiting("a", 100)
        assert waiting is not None
        assert (waiting.count, waiting.oldest - begun, waiting.newest - begun) == (14, 0, 39 * SECOND)
        few = await queue.waiting("b", 4)
        assert few is not None
        assert few.count == 4

    run(body)
