"""Limits of tasks and of their runs, at each and one past it."""

from random import Random

import pytest

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput, TooLarge
from tally.tasks import blobs
from tally.tasks import run as steps
from tally.tasks.context import Context
from tally.tasks.pace import Bounds
from tally.tasks.pool import WorkerPool
from tally.tasks.push import _deadline
from tally.tasks.queues import PullQueues
from tally.tasks.run import Claimed, Run
from tally.tasks.task import Task
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tests.unit.tasks.pull import World, run


@pytest.mark.parametrize("past", [False, True])
def test_a_lease_waits_for_so_long_at_most(past: bool) -> None:
    async def body(world: World) -> None:
        leasing = world.queue().lease(1, wait=limits.LEASE_WAIT_SECONDS + past)
        if past:
            with pytest.raises(InvalidInput, match="want 0 to 3600"):
                await leasing
        else:
            assert await leasing == []

    run(body)


@pytest.mark.parametrize(("size", "entities"), [(limits.INLINE_BYTES, 1), (limits.INLINE_BYTES + 1, 2)])
def test_a_larger_payload_lies_beside_its_row(size: int, entities: int) -> None:
    async def body(world: World) -> None:
        queue = world.queue()
        await queue.add(Task(name="first"))
        world.store.commits.clear()
        await queue.add(Task(payload=bytes(size)))
        assert sum(len(writes) for writes in world.store.commits) == entities
        leases = await queue.lease(2)
        assert sorted(len(lease.task.payload) for lease in leases) == [0, size]

    run(body)


def test_a_listing_shows_so_many_tasks() -> None:
    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.add_many(Task() for _ in range(limits.LISTED_TASKS + 1))
        assert len(await queue.list(limit=limits.LISTED_TASKS)) == limits.LISTED_TASKS
        with pytest.raises(InvalidInput, match="want 1 to 1000"):
            await queue.list(limit=limits.LISTED_TASKS + 1)

    run(body)


def test_stats_count_up_to_their_limit_and_then_say_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COUNTED_ROWS", 20)

    async def body(world: World) -> None:
        queue = world.queue(shards=1)
        await queue.add_many(Task() for _ in range(19))
        stats = await queue.stats()
        assert (stats.tasks, stats.truncated) == (19, False)
        await queue.add_many([Task(), Task()])
        stats = await queue.stats()
        assert (stats.tasks, stats.truncated) == (20, True)

    run(body)


def test_a_process_keeps_so_many_queues_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELD_QUEUES", 3)
    queues = PullQueues(FakeStore(), clock=VirtualClock(), random=Random(1))
    first = queues("q0")
    for number in range(1, 3):
        queues(f"q{number}")
    assert queues("q0") is first
    for number in range(3, 6):
        queues(f"q{number}")
    assert queues("q0") is not first


@pytest.mark.parametrize(
    ("size", "chunks"), [(limits.CHUNK_BYTES, 1), (limits.CHUNK_BYTES + 1, 2), (limits.BLOB_BYTES, 13)]
)
def test_a_blob_is_cut_into_chunks(tally_loop: VirtualLoop, size: int, chunks: int) -> None:
    async def main() -> None:
        store = FakeStore()
        blob = await blobs.put(store, bytes(size), expires=None, random=Random(1))
        assert len(store.entities) == chunks
        assert await blobs.get(store, blob) == bytes(size)

    tally_loop.run(main())


def test_a_blob_past_its_limit_is_refused(tally_loop: VirtualLoop) -> None:
    with pytest.raises(TooLarge, match="11200000"):
        tally_loop.run(blobs.put(FakeStore(), bytes(limits.BLOB_BYTES + 1), expires=None, random=Random(1)))


def test_progress_is_shown_up_to_its_limit() -> None:
    shown: list[bytes] = []
    context = Context(id="", name="", attempt=1, queue="", eta=0, worker="", deadline=0.0, report=shown.append)
    context.progress("x" * (limits.PROGRESS_BYTES - 2))
    with pytest.raises(TooLarge, match="limit is 4000"):
        context.progress("x" * (limits.PROGRESS_BYTES - 1))
    assert len(shown[0]) == limits.PROGRESS_BYTES


def test_a_long_error_is_cut_in_its_middle() -> None:
    whole = "a" * limits.RUN_ERROR_BYTES
    assert steps.short(whole) == whole
    cut = steps.short(whole + "z")
    assert len(cut.encode()) <= limits.RUN_ERROR_BYTES
    assert (cut[0], cut[-1]) == ("a", "z")


def test_a_run_keeps_its_latest_attempts() -> None:
    run = Run(id="", call="", queue="", epoch=0, due=0, keep=None)
    for number in range(1, limits.ATTEMPTS_KEPT + 2):
        claimed = steps.claim(run, worker="w", token=str(number), now=number * 100 * SECOND, lease=SECOND, hop=None)
        assert isinstance(claimed, Claimed)
        run = claimed.run
        assert len(run.attempts) == min(number, limits.ATTEMPTS_KEPT)
    assert run.attempts[0].number == 2


@pytest.mark.parametrize(
    ("timeout", "deadline"), [(1.0, 15.0), (1_700.0, None), (1_800.0, 1_800.0), (86_400.0, 1_800.0)]
)
def test_a_dispatch_deadline_is_the_timeout_within_the_service_s_limits(timeout: float, deadline: float | None) -> None:
    given = _deadline(timeout)
    assert limits.DISPATCH_SECONDS_MIN <= given <= limits.DISPATCH_SECONDS
    assert given > timeout if deadline is None else given == deadline


@pytest.mark.parametrize("past", [False, True])
def test_a_pool_has_so_many_workers_and_jobs(tally_loop: VirtualLoop, past: bool) -> None:
    async def main() -> None:
        for size, queue in ((limits.POOL_WORKERS + past, 1), (1, limits.POOL_JOBS + past)):
            if past:
                with pytest.raises(InvalidInput, match="want 1 to"):
                    WorkerPool(size, queue=queue)
            else:
                WorkerPool(size, queue=queue)
        if not past:
            assert Bounds(at_least=1, at_most=limits.POOL_WORKERS)

    tally_loop.run(main())
