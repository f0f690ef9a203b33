"""PullQueue as its users see it, on a fake store and virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from tally import limits
from tally.clock import SECOND, to_datetime
from tally.errors import BackendError, Conflict, InvalidInput, LeaseExpired, Refused, TooLarge, Unavailable
from tally.ports import Entity, Insert
from tally.retry import RetryPolicy
from tally.tasks.leasing import OLDEST
from tally.tasks.task import Task, Unique
from tests.unit.tasks.pull import World, run

LOST = Unavailable("no reply", status="DEADLINE_EXCEEDED")
ABORTED = Refused("aborted", status="ABORTED")


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


def test_a_name_is_free_again_when_its_tombstone_has_served_its_time() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        await queue.complete((await queue.lease())[0])
        assert (await queue.add(Task(name="a"))).status == "tombstoned"
        await asyncio.sleep(86_399)
        assert (await queue.add(Task(name="a"))).status == "tombstoned"
        await asyncio.sleep(2)
        assert (await queue.add(Task(name="a", payload=bytes(10_000)))).status == "added"
        (lease,) = await queue.lease()
        assert len(lease.task.payload) == 10_000

    run(body)


def test_a_sweep_removes_only_tombstones_whose_time_is_over() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="named"), *(Task() for _ in range(20)), Task(name="lives", delay=1_000_000)])
        await queue.complete_many(await queue.lease(100))
        assert await queue.sweep() == 0
        await asyncio.sleep(601)
        assert await queue.sweep() == 20
        await asyncio.sleep(86_400)
        assert await queue.sweep() == 1
        assert [info.name for info in await queue.list()] == ["lives"]

    run(body)


def test_unique_tasks_are_one_in_a_period_even_when_the_first_is_done() -> None:
    async def body(world: World) -> None:
        queue = world.queue()

        async def add(n: int) -> str:
            return (await queue.add(Task.json(n, unique=Unique(period=3_600, key="k")))).status

        assert [await add(1), await add(2)] == ["added", "exists"]
        await queue.complete((await queue.lease())[0])
        await asyncio.sleep(3_590)
        assert await add(3) == "tombstoned"
        await asyncio.sleep(11)
        assert await add(4) == "added"
        assert (await queue.lease())[0].task.value() == 4

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


def test_leasing_by_tag_takes_that_tag_only() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task(name=f"{tag}-{n}", tag=tag) for n in range(3) for tag in ("x", "y"))
        await queue.add(Task(name="bare"))
        assert {lease.name for lease in await queue.lease(10, tag="y")} == {"y-0", "y-1", "y-2"}
        assert {lease.name for lease in await queue.lease(10)} == {"x-0", "x-1", "x-2", "bare"}

    run(body)


@pytest.mark.parametrize(("first", "wanted"), [("y", {"y-0", "y-1"}), (None, {"None-0", "None-1"})])
def test_oldest_takes_the_tag_of_the_task_that_is_due_first(first: str | None, wanted: set[str]) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name=f"{first}-0", tag=first))
        await asyncio.sleep(1)
        await queue.add_many(Task(name=f"{tag}-1", tag=tag) for tag in ("x", "y", None))
        assert {lease.name for lease in await queue.lease(10, tag=OLDEST)} == wanted

    run(body)


def test_oldest_of_an_empty_queue_is_nothing() -> None:
    async def body(world: World) -> None:
        assert await world.queue().lease(10, tag=OLDEST) == []

    run(body)


def test_a_lease_waits_for_the_first_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(queue.lease(10, wait=30))
        await asyncio.sleep(5)
        await world.queue().add(Task(name="a"))
        (lease,) = await waiting
        assert lease.name == "a"
        assert 5 <= loop.time() <= 6.1
        assert await queue.lease(10, wait=3) == []
        assert 8 <= loop.time() <= 9.2

    run(body)


def test_an_expired_lease_finishes_nothing_and_its_task_goes_to_another() -> None:
    async def body(world: World) -> None:
        queue, other = world.queue(), world.queue()
        await queue.add(Task(name="a"))
        (zombie,) = await queue.lease(seconds=30)
        await asyncio.sleep(31)
        (lease,) = await other.lease(seconds=30)
        assert (lease.name, lease.attempt) == ("a", 2)
        for finish in (
            queue.complete(zombie),
            queue.release(zombie),
            queue.reject(zombie, "x"),
            queue.extend(zombie, 30),
        ):
            with pytest.raises(LeaseExpired):
                await finish
        assert await queue.complete_many([zombie, lease]) == ["lost", "done"]

    run(body)


def test_a_lease_that_is_over_finishes_nothing_even_while_nobody_else_has_its_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (late,) = await queue.lease(seconds=30)
        await asyncio.sleep(30)
        commits = len(world.store.commits)
        for finish in (queue.complete(late), queue.release(late), queue.reject(late, "x"), queue.extend(late, 30)):
            with pytest.raises(LeaseExpired):
                await finish
        assert len(world.store.commits) == commits
        assert [lease.attempt for lease in await queue.lease()] == [2]

    run(body)


def test_a_task_that_was_given_back_cannot_be_extended() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=30)
        await queue.release(lease, delay=5)
        with pytest.raises(LeaseExpired):
            await queue.extend(lease, 60)
        await asyncio.sleep(5)
        assert [again.attempt for again in await queue.lease()] == [2]

    run(body)


def test_what_a_lease_has_settled_it_cannot_settle_otherwise() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        for first in ("complete", "release", "reject"):
            await queue.add(Task(name=first))
            (lease,) = await queue.lease(seconds=60)
            settle: dict[str, Callable[[], Awaitable[object]]] = {
                "complete": partial(queue.complete, lease),
                "release": partial(queue.release, lease, delay=3_600),
                "reject": partial(queue.reject, lease, "x"),
            }
            await settle[first]()
            for then in settle.keys() - {first}:
                with pytest.raises(LeaseExpired):
                    await settle[then]()

    run(body)


def test_no_lease_is_found_by_the_token_of_a_task_that_waits() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="waits"), Task(name="dead", expires=1)])
        await asyncio.sleep(1)
        await queue.lease(seconds=1)
        await asyncio.sleep(1)
        assert await queue.held_many([("waits", ""), ("dead", ""), ("none", "")]) == [None, None, None]

    run(body)


def test_a_task_deleted_and_swept_while_it_was_held_is_lost_to_its_holder() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=7 * 86_400)
        await queue.delete("a")
        await asyncio.sleep(86_401)
        assert await queue.sweep() == 1
        assert await queue.complete_many([lease]) == ["lost"]
        with pytest.raises(LeaseExpired):
            await queue.extend(lease, 30)

    run(body)


def test_a_holder_whose_clock_is_late_is_fenced_by_the_token() -> None:
    async def body(world: World) -> None:
        slow = world.queue()
        await slow.add(Task(name="a"))
        (zombie,) = await slow.lease(seconds=30)
        world.clock.step(31 * SECOND)
        (lease,) = await world.queue().lease(seconds=30)
        world.clock.step(-31 * SECOND)
        commits = len(world.store.commits)
        with pytest.raises(LeaseExpired):
            await slow.complete(zombie)
        assert len(world.store.commits) > commits  # it did try, and the store refused
        await slow.complete(lease)

    run(body)


def test_extending_keeps_the_task_and_counts_no_attempt() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=30)
        for _ in range(5):
            await asyncio.sleep(20)
            lease = await queue.extend(lease, 30)
        assert await world.queue().lease() == []
        assert lease.attempt == 1
        await queue.complete(lease)

    run(body)


def test_an_older_lease_object_still_finishes_the_task_after_an_extension() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        (lease,) = await queue.lease(seconds=60)
        await queue.extend(lease, 90)
        await queue.complete(lease)
        assert (await queue.stats()).tasks == 0

    run(body)


def test_a_released_task_is_due_at_once_or_after_the_delay() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        assert await queue.release((await queue.lease())[0]) == "released"
        (lease,) = await queue.lease()
        assert lease.attempt == 2
        await queue.release(lease, delay=timedelta(seconds=10))
        assert await queue.lease() == []
        await asyncio.sleep(10)
        assert len(await queue.lease()) == 1

    run(body)


def test_failures_back_off_by_the_policy_and_end_as_a_dead_letter_with_the_last_error() -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=3, min_backoff=10, max_backoff=100))
        await queue.add(Task(name="a", payload=bytes(9_000)))
        for wait in (10, 20):
            assert await queue.release((await queue.lease())[0], error="boom") == "released"
            await asyncio.sleep(wait - 1)
            assert await queue.lease() == []
            await asyncio.sleep(1.1)
        (lease,) = await queue.lease()
        assert (lease.attempt, lease.last_error) == (3, "boom")
        assert await queue.release(lease, error="bang") == "dead"
        assert await queue.lease() == []
        (info,) = await queue.list("dead")
        assert (info.state, info.name, info.error) == ("dead", "a", "given up after 3 attempts: bang")
        assert (await queue.add(Task(name="a"))).status == "exists"
        assert await queue.replay("a")
        assert not await queue.replay("a")
        (lease,) = await queue.lease()
        assert (lease.attempt, len(lease.task.payload)) == (1, 9_000)

    run(body)


def test_a_task_whose_workers_die_becomes_a_dead_letter_after_its_attempts() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a", retry=RetryPolicy(max_attempts=2)))
        for _ in range(2):
            assert len(await queue.lease(seconds=10)) == 1
            await asyncio.sleep(11)
        assert await queue.lease() == []
        (info,) = await queue.list("dead")
        assert info.error == "given up after 2 attempts: its lease ended and nothing was heard"
        assert (await queue.stats()).dead == 1
        assert await queue.drop("a")
        assert (await queue.stats()).dead == 0

    run(body)


def test_an_age_limit_alone_ends_a_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=-1, max_retry_duration=60, max_backoff=1, min_backoff=1))
        await queue.add(Task(name="a"))
        while leases := await queue.lease(wait=5):
            await queue.release(leases[0], error="no")
        assert 60 <= asyncio.get_running_loop().time() <= 68
        (info,) = await queue.list("dead")
        assert (info.error or "").endswith("attempts: no")

    run(body)


def test_a_task_that_expires_before_it_runs_is_a_dead_letter() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many([Task(name="a", expires=10), Task(name="b", expires=1_000)])
        await asyncio.sleep(11)
        assert [lease.name for lease in await queue.lease(10)] == ["b"]
        assert [info.error for info in await queue.list("dead")] == ["expired before it ran"]

    run(body)


def test_reject_makes_a_dead_letter_at_once_and_cuts_a_long_error() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a"))
        await queue.reject((await queue.lease())[0], "é" * 100_000)
        (info,) = await queue.list("dead")
        assert limits.ERROR_BYTES - 2 <= len((info.error or "").encode()) <= limits.ERROR_BYTES

    run(body)


def test_many_dead_tasks_do_not_hide_the_living() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.add_many(Task(name=f"a-{n}", expires=1) for n in range(9))
        await queue.add(Task(name="b"))
        await asyncio.sleep(2)
        assert [lease.name for lease in await queue.lease(1)] == ["b"]

    run(body)


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


@pytest.mark.parametrize(
    ("max_tasks", "seconds", "tag", "wait", "says"),
    [
        (0, 60, None, 0, "max_tasks is 0"),
        (1_001, 60, None, 0, "max_tasks is 1001: want 1 to 1000"),
        (True, 60, None, 0, "max_tasks is True"),
        (1, 0, None, 0, "lease seconds is 0 s"),
        (1, 604_801, None, 0, "lease seconds is 604801 s"),
        (1, 60, "", 0, "tag of 0 bytes"),
        (1, 60, "a" * 501, 0, "tag of 501 bytes"),
        (1, 60, None, -1, "wait is -1 s"),
    ],
)
def test_a_lease_out_of_bounds_is_refused(
    max_tasks: int, seconds: float, tag: str | None, wait: float, says: str
) -> None:
    async def body(world: World) -> None:
        with pytest.raises(InvalidInput, match=says):
            await world.queue().lease(max_tasks, seconds=seconds, tag=tag, wait=wait)

    run(body)


def test_a_lease_at_the_limits_is_given() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task() for _ in range(1_010))
        assert len(await queue.lease(1_000, seconds=604_800)) == 1_000

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


def test_one_lease_gives_no_more_bytes_than_its_limit_but_always_one_task() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add_many(Task(payload=bytes(900_000)) for _ in range(40))
        sizes = [len(lease.task.payload) for lease in await queue.lease(1_000)]
        assert 0 < sum(sizes) <= limits.LEASE_BYTES
        assert set(sizes) == {900_000}
        assert len(await queue.lease(1_000)) > 0

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


def test_a_lease_is_found_again_by_name_and_token() -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="a", payload=bytes(9_000)))
        (lease,) = await queue.lease()
        with pytest.raises(LeaseExpired):
            await queue.held("a", "wrong")
        with pytest.raises(LeaseExpired):
            await queue.held("a", "")
        await queue.complete(await queue.held("a", lease.token))
        with pytest.raises(LeaseExpired):
            await queue.held("a", lease.token)
        assert {entity.key[-1][0] for entity in world.fake.entities.values()} == {"TaskQueue", "Task"}

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


def test_a_lease_that_does_not_count_uses_up_no_attempt() -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=2, max_retry_duration=50, min_backoff=1))
        await queue.add(Task())
        for _ in range(5):
            (lease,) = await queue.lease(wait=60)
            assert lease.attempt == 1
            assert await queue.release(lease, delay=30, error="the printer is off", counts=False) == "released"
        for last in ("released", "dead"):  # its time begins with the first attempt that counts
            (lease,) = await queue.lease(wait=60)
            assert lease.last_error is not None
            assert await queue.release(lease, delay=55, error="jammed") == last

    run(body)
