"""The pull queue on every store: each verb, under the same ids."""

import asyncio

import pytest

from tally.clock import SystemClock
from tally.errors import LeaseExpired, Refused
from tally.ports import Entity, Insert, Store
from tally.retry import RetryPolicy
from tally.tasks.leasing import OLDEST
from tally.tasks.queue import PullQueue
from tally.tasks.start_rate import StartRate
from tally.tasks.task import Task, Unique


@pytest.fixture
def queue(store: Store) -> PullQueue:
    return PullQueue(store, "q", clock=SystemClock())


def another(store: Store) -> PullQueue:
    return PullQueue(store, "q", clock=SystemClock())


async def test_a_task_lives_from_add_to_complete(queue: PullQueue) -> None:
    await queue.add(Task.json({"to": "é"}, name="a", tag="mail", headers={"x": "1"}))
    (lease,) = await queue.lease(10, seconds=60)
    assert (lease.task.value(), lease.task.tag, lease.task.headers) == ({"to": "é"}, "mail", {"x": "1"})
    lease = await queue.extend(lease, 120)
    stats = await queue.stats()
    assert (stats.tasks, stats.in_flight, stats.executed_last_minute) == (1, 1, 0)
    await queue.complete(lease)
    stats = await queue.stats()
    assert (stats.tasks, stats.in_flight, stats.executed_last_minute, stats.oldest_eta) == (0, 0, 1, None)
    assert (await queue.add(Task(name="a"))).status == "tombstoned"


async def test_many_tasks_of_many_sizes_come_back_whole(queue: PullQueue) -> None:
    payloads = [bytes([n % 251]) * (20_000 if n % 50 == 0 else n) for n in range(700)]
    payloads.append(b"\xff" * 900_000)
    outcomes = await queue.add_many(Task(payload=payload) for payload in payloads)
    assert {outcome.status for outcome in outcomes} == {"added"}
    found: list[bytes] = []
    while leases := await queue.lease(1_000):
        found += [lease.task.payload for lease in leases]
        assert set(await queue.complete_many(leases)) == {"done"}
    assert sorted(found) == sorted(payloads)
    assert (await queue.stats()).executed_last_minute == len(payloads)


async def test_competing_lessees_share_the_tasks(store: Store, queue: PullQueue) -> None:
    await queue.add_many(Task(name=f"n-{n}") for n in range(120))

    async def work() -> list[str]:
        names: list[str] = []
        mine = another(store)
        while leases := await mine.lease(7, wait=0.5):
            assert set(await mine.complete_many(leases)) == {"done"}
            names += [lease.name for lease in leases]
        return names

    done = [name for names in await asyncio.gather(*(work() for _ in range(3))) for name in names]
    assert sorted(done) == sorted(f"n-{n}" for n in range(120))


async def test_an_idle_lessee_finds_what_comes_in_its_own_queue(store: Store, queue: PullQueue) -> None:
    for name in ("p", "q-2", "qq"):
        await PullQueue(store, name, clock=SystemClock()).add(Task())
    await queue.add_many(Task(delay=600) for _ in range(3))
    for name in map(str, range(8)):
        assert await queue.lease(10) == []
        assert await queue.lease(10) == []
        await another(store).add(Task(name=name))
        assert [lease.name for lease in await queue.lease(10)] == [name]


async def test_a_task_is_finished_by_the_holder_of_its_token_only(store: Store, queue: PullQueue) -> None:
    await queue.add(Task(name="a"))
    (zombie,) = await queue.lease(seconds=0.2)
    (lease,) = await another(store).lease(wait=10)
    with pytest.raises(LeaseExpired):
        await queue.complete(zombie)
    assert await queue.complete_many([zombie, lease]) == ["lost", "done"]


async def test_failures_end_as_dead_letters_that_can_be_replayed(queue: PullQueue) -> None:
    await queue.add(Task.text("x", name="a", retry=RetryPolicy(max_attempts=1)))
    assert await queue.release((await queue.lease())[0], error="boom" * 1_000) == "dead"
    (info,) = await queue.list("dead")
    assert (info.name, (info.error or "")[:29]) == ("a", "given up after 1 attempts: bo")
    assert await queue.replay("a")
    (lease,) = await queue.lease()
    assert lease.task.value() == "x"


async def test_tasks_are_leased_by_tag_and_by_that_of_the_oldest(queue: PullQueue) -> None:
    await queue.add(Task(name="first", tag="ä b"))
    await asyncio.sleep(0.002)
    await queue.add_many([Task(name="x-1", tag="x"), Task(name="second", tag="ä b"), Task(name="bare")])
    assert {lease.name for lease in await queue.lease(10, tag=OLDEST)} == {"first", "second"}
    assert [lease.name for lease in await queue.lease(10, tag="x")] == ["x-1"]
    assert [lease.name for lease in await queue.lease(10)] == ["bare"]


async def test_bulk_adds_meet_names_that_are_taken(queue: PullQueue) -> None:
    await queue.add(Task(name="b"))
    outcomes = await queue.add_many(Task(name=name) for name in "abc")
    assert [outcome.status for outcome in outcomes] == ["added", "exists", "added"]


async def test_a_commit_of_the_callers_holds_its_writes_and_the_tasks(store: Store, queue: PullQueue) -> None:
    order = Insert(Entity(key=(("Order", "1"),), properties={"n": 1}))
    await store.commit([order, *(await queue.prepare([Task(name="ship"), Task(payload=bytes(9_000))])).writes])
    assert len(await queue.list()) == 2
    with pytest.raises(Refused):
        await store.commit([order, *(await queue.prepare([Task(name="again")])).writes])
    assert await queue.peek("again") is None


async def test_a_queue_is_paused_peeked_at_and_purged_and_a_task_deleted(queue: PullQueue) -> None:
    await queue.add_many(Task(name=f"n-{n}", payload=bytes(5_000)) for n in range(30))
    await queue.pause()
    assert await queue.lease(10) == []
    assert (await queue.stats()).paused
    await queue.resume()
    assert len(await queue.lease(5)) == 5
    assert await queue.delete("n-3")
    info = await queue.peek("n-4")
    assert info is not None
    assert info.size == len(info.task.payload) == 5_000
    assert await queue.purge() == 29
    assert (await queue.stats()).tasks == 0
    assert await queue.sweep() == 0


async def test_a_rate_holds_for_all_who_lease(store: Store, queue: PullQueue) -> None:
    await queue.add_many(Task() for _ in range(16))
    await queue.set_rate(StartRate(per_second=0.001, burst=12))
    assert len(await another(store).lease(4)) == 4
    # Of those who ask at once some get nothing, and who meets another gets fewer than its tokens; but some get on.
    leases = await asyncio.gather(*(another(store).lease(4) for _ in range(4)))
    assert 0 < sum(map(len, leases)) <= 8
    await queue.set_rate(None)
    rest = await queue.lease(16)
    assert 4 + sum(map(len, leases)) + len(rest) == 16


async def test_tasks_are_exchanged_for_writes_of_the_holders_own(store: Store, queue: PullQueue) -> None:
    await queue.add_many(Task(name=f"n-{n}", tag="ab"[n % 2], payload=bytes(5_000 * n)) for n in range(8))
    await queue.add(Task(name="bare"))
    assert sorted(await queue.tags()) == ["a", "b"]
    waiting = await queue.waiting("a", 3)
    assert waiting is not None
    assert waiting.count == 3
    assert waiting.oldest <= waiting.newest
    leases = await queue.lease(8, tag="a")
    digest = Insert(Entity(key=(("Digest", "1"),), properties={"n": len(leases)}))
    assert await queue.delete(leases[0].name)
    with pytest.raises(LeaseExpired):
        await queue.complete_with(leases, [digest])
    await queue.complete_with(leases[1:], [digest])
    assert {info.name for info in await queue.list()} == {"bare", "n-1", "n-3", "n-5", "n-7"}
    with pytest.raises(Refused):
        await store.commit([digest])


async def test_each_task_of_a_bulk_has_an_outcome_of_its_own(queue: PullQueue) -> None:
    await queue.add_many([Task(name="here"), Task(name="gone")])
    assert await queue.delete("gone")
    wrong = Task(payload=bytes(900_001), name="wrong")
    outcomes = await queue.add_many([Task(name="here"), Task(name="gone"), wrong, Task(name="new"), Task(name="new")])
    assert [each.status for each in outcomes] == ["exists", "tombstoned", "invalid", "added", "exists"]


async def test_a_unique_task_is_one_for_its_period(queue: PullQueue) -> None:
    task = Task.text("x", unique=Unique(period=3_600, key="k"))
    assert [(await queue.add(task)).status for _ in range(2)] == ["added", "exists"]
    await queue.complete((await queue.lease())[0])
    assert (await queue.add(task)).status == "tombstoned"


async def test_a_lease_waits_for_a_task_that_is_due_later(queue: PullQueue) -> None:
    await queue.add(Task(name="soon", delay=0.3))
    await queue.add(Task(name="late", delay=3_600))
    assert await queue.lease(10) == []
    assert [lease.name for lease in await queue.lease(10, wait=10)] == ["soon"]


async def test_a_released_task_comes_back_with_its_error_and_after_its_delay(queue: PullQueue) -> None:
    await queue.add(Task(name="a"))
    (lease,) = await queue.lease()
    assert await queue.release(lease, delay=3_600, error="busy") == "released"
    assert await queue.lease() == []
    info = await queue.peek("a")
    assert info is not None
    assert (info.state, info.error, info.attempts) == ("delayed", "busy", 1)
    assert await queue.run_now("a")
    assert [again.attempt for again in await queue.lease()] == [2]


async def test_an_extended_lease_outlives_its_first_end(store: Store, queue: PullQueue) -> None:
    await queue.add(Task(name="a"))
    (lease,) = await queue.lease(seconds=0.3)
    lease = await queue.extend(lease, 3_600)
    await asyncio.sleep(0.4)
    assert await another(store).lease() == []
    held = await another(store).held(lease.name, lease.token)
    await another(store).complete(held)
    with pytest.raises(LeaseExpired):
        await queue.extend(lease, 60)


async def test_what_was_given_back_or_rejected_can_be_settled_no_more(queue: PullQueue) -> None:
    await queue.add_many([Task(name="a"), Task(name="b")])
    first, second = sorted(await queue.lease(2), key=lambda lease: lease.name)
    await queue.release(first)
    await queue.reject(second, "never")
    assert await queue.complete_many([first, second]) == ["lost", "lost"]
    assert [info.name for info in await queue.list("dead")] == ["b"]
    assert await queue.drop("b")
    assert (await queue.stats()).dead == 0


async def test_an_expired_task_and_one_past_its_age_are_dead_letters(queue: PullQueue) -> None:
    aged = RetryPolicy(max_attempts=-1, max_retry_duration=0.1)
    await queue.add_many([Task(name="expires", expires=0.1), Task(name="ages", retry=aged)])
    await queue.lease(2, seconds=0.2)
    await asyncio.sleep(0.3)
    assert await queue.lease(2) == []
    errors = {info.name: info.error for info in await queue.list("dead")}
    assert errors["expires"] == "expired before it ran"
    assert (errors["ages"] or "").startswith("given up after 1 attempts")


async def test_lists_show_what_waits_what_is_leased_and_what_is_delayed(queue: PullQueue) -> None:
    await queue.add_many([Task(name="now"), Task(name="later", delay=3_600)])
    (lease,) = await queue.lease()
    assert [(info.name, info.state) for info in await queue.list("leased")] == [("now", "leased")]
    await queue.add(Task(name="next"))
    assert {info.name: info.state for info in await queue.list()} == {
        "now": "leased",
        "later": "delayed",
        "next": "waiting",
    }
    stats = await queue.stats()
    assert (stats.tasks, stats.in_flight, stats.dead) == (3, 1, 0)
    assert len(await queue.list(limit=2)) == 2
    await queue.complete(lease)
