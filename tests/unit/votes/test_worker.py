"""The worker over the fakes, on virtual time: what it does while a service fails, and what it never does."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from tally import limits
from tally.clock import SECOND
from tally.errors import BackendError, Rejected, Unavailable, UnsafeStore
from tally.ports import Committed, Delete, Key, OnConflict, Outgoing, Update, Upsert, Write
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore, key_of
from tally.votes import keys, ledger
from tally.votes.polls import to_entity
from tally.votes.worker import Worker
from tests.unit.votes.pipeline import Pipeline, poll, votes
from tests.unit.votes.scripted import ScriptedStore

DOWN = Unavailable("down", status="UNAVAILABLE")
Scene = Callable[[Pipeline, ScriptedStore], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tally_loop: VirtualLoop) -> Callable[[Scene], None]:
    """Give a function that plays a scene on a pipeline whose store is scripted."""

    async def main(scene: Scene) -> None:
        pipeline = Pipeline()
        store = ScriptedStore(pipeline.backend.store)
        pipeline.store = store
        await scene(pipeline, store)

    return lambda scene: tally_loop.run(main(scene))


class Running:
    """A worker at work, until the block is left."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.stop = asyncio.Event()

    async def __aenter__(self) -> "Running":
        self.task = asyncio.create_task(self.worker.run(self.stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        assert await self.task == 0

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Look ten times a (virtual) second."""
        for _ in range(round(seconds * 10)):
            if condition():
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"not within {seconds} s")

    def settled(self) -> int:
        settled = self.worker.health().body["settled"]
        assert isinstance(settled, int)
        return settled


def shard_writes(writes: Sequence[Write]) -> set[Key]:
    return {key_of(write)[:1] for write in writes if key_of(write)[0][0] == keys.SHARD}


def up(_: object) -> None:
    """Fail nothing."""


def is_probe(writes: Sequence[Write]) -> bool:
    return any("~probe" in str(key_of(write)[0][1]) for write in writes)


def test_every_vote_counts_once_however_many_copies_arrive(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll()
        await pipeline.prepare(made)
        now = pipeline.clock.now()
        await pipeline.publish(votes(made, range(1_000), now))
        await pipeline.publish(votes(made, range(500), now), size=1)
        assert await pipeline.drain(workers=2) == [0, 0]
        assert await pipeline.totals(made) == {"red": 500, "blue": 500}
        assert await pipeline.dead_letters() == []

    play(scene)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_rpcs_a_commit_stay_within_the_budget(play: Callable[[Scene], None], workers: int) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll()
        await pipeline.prepare(made)
        running = [await Running(pipeline.worker()).__aenter__() for _ in range(workers)]
        await asyncio.sleep(5)
        store.gets.clear()
        store.commits.clear()
        for second in range(40):
            for part in range(10):
                start = second * 1_000 + part * 100
                await pipeline.publish(votes(made, range(start, start + 100), pipeline.clock.now()), size=5)
                await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        for one in running:
            await one.__aexit__()
        assert sum((await pipeline.totals(made)).values()) == 40_000
        commits = [writes for writes in store.commits if shard_writes(writes)]
        reads = [asked for asked in store.gets if asked[0][0][0] == keys.SHARD]
        succeeded = 0
        for number in range(made.partitions):
            (shard,) = (await store.store.get([keys.shard(made.id, number)])).found
            succeeded += ledger.parse_shard(shard).sequence
        assert (len(reads) + len(commits)) / succeeded <= (1.05 if workers == 1 else 2.5)
        assert all(sum(not isinstance(write, Delete) for write in writes) == 2 for writes in commits)

    play(scene)


def test_one_commit_a_partition_is_in_flight_and_copies_wait_for_it(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(1)
            store.gate = asyncio.Event()
            now = pipeline.clock.now()
            await pipeline.publish(votes(made, [1], now))
            await running.until(lambda: store.in_flight == 1, 5)
            await pipeline.publish(votes(made, [1], now))
            await asyncio.sleep(30)
            assert store.most_in_flight == 1
            assert running.settled() == 0
            store.gate.set()
            await running.until(lambda: running.settled() == 2, 5)
        assert await pipeline.totals(made) == {"red": 0, "blue": 1}

    play(scene)


def test_a_lease_is_extended_while_a_commit_hangs(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(1)
            store.gate = asyncio.Event()
            await pipeline.publish(votes(made, [1], pipeline.clock.now()))
            await running.until(lambda: store.in_flight == 1, 5)
            await asyncio.sleep(50)
            assert await pipeline.backend.puller("votes").pull(10) == []
            store.gate.set()

    play(scene)


def test_nothing_is_acknowledged_before_its_commit(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=4)
        await pipeline.prepare(made)

        def fail(writes: Sequence[Write]) -> BackendError | None:
            if shard_writes(writes) == {keys.shard("p", 2)}:
                raise DOWN
            return None

        store.on_commit = fail
        await pipeline.publish(votes(made, range(100), pipeline.clock.now()))
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(20)
            assert running.settled() == 0
            store.on_commit = up
            await running.until(lambda: running.settled() == 1, 90)
        assert sum((await pipeline.totals(made)).values()) == 100

    play(scene)


def test_a_poison_partition_never_stops_its_neighbours(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=16)
        await pipeline.prepare(made)
        poison = keys.shard("p", 3)

        def fail(writes: Sequence[Write]) -> BackendError | None:
            if poison in shard_writes(writes):
                raise Unavailable("no", status="PERMISSION_DENIED")
            return None

        store.on_commit = fail
        async with Running(pipeline.worker()) as running:
            for second in range(120):
                start = second * 50
                await pipeline.publish(votes(made, range(start, start + 50), pipeline.clock.now()), size=1)
                await asyncio.sleep(1)
            await asyncio.sleep(5)
            body = running.worker.health().body
            assert [lane["partition"] for lane in body["parked"]] == [3]  # type: ignore[attr-defined]  # a list
            assert not body["store_down"]
            counted = sum((await pipeline.totals(made)).values())
            here = sum(1 for vote in votes(made, range(6_000), 0) if int.from_bytes(vote.ballot, "big") % 16 == 3)
            assert counted == 6_000 - here
            assert running.worker.health().ok
            store.on_commit = up
            await running.until(lambda: running.settled() == 6_000, 200)
        assert sum((await pipeline.totals(made)).values()) == 6_000
        assert await pipeline.dead_letters() == []

    play(scene)


def test_a_poison_partition_that_is_active_alone_does_not_slow_the_others_when_they_wake(
    play: Callable[[Scene], None],
) -> None:
    """All that was tried for minutes has failed, and yet the store is not down: the worker finds that out by itself."""

    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made, other = poll(partitions=1), poll("other", partitions=4)
        await pipeline.prepare(made, other)

        def poison(writes: Sequence[Write]) -> BackendError | None:
            if shard_writes(writes) == {keys.shard("p", 0)}:
                raise DOWN
            return None

        async with Running(pipeline.worker()) as running:
            now = pipeline.clock.now()
            await pipeline.publish(votes(made, [5_000], now) + votes(other, range(8), now))
            await running.until(lambda: running.settled() == 1, 5)
            store.on_commit = poison
            for second in range(200):
                await pipeline.publish(votes(made, range(second * 5, second * 5 + 5), pipeline.clock.now()), size=1)
                await asyncio.sleep(1)
                assert not running.worker.health().body["store_down"]
            await pipeline.publish(votes(other, range(8, 508), pipeline.clock.now()), size=1)
            await running.until(lambda: running.settled() == 501, 10)
            store.on_commit = up
            await running.until(lambda: running.settled() == 1_501, 200)
        assert sum((await pipeline.totals(made)).values()) == 1_001
        assert sum((await pipeline.totals(other)).values()) == 508

    play(scene)


@pytest.mark.parametrize("seconds", [1, 60, 600])
@pytest.mark.parametrize("status", ["UNAVAILABLE", "PERMISSION_DENIED"])
def test_an_outage_of_the_store_loses_nothing_and_needs_nobody(
    play: Callable[[Scene], None], seconds: int, status: str
) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=4)
        await pipeline.prepare(made)
        await pipeline.publish(votes(made, range(1_000), pipeline.clock.now()), size=1)

        def down(_: object) -> BackendError | None:
            raise Unavailable("down", status=status)

        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(2)
            store.on_commit, store.on_get = down, down
            await pipeline.publish(votes(made, range(1_000, 3_000), pipeline.clock.now()), size=10)
            await asyncio.sleep(seconds)
            if seconds == 600:
                assert not running.worker.health().ok
                assert running.worker.health().body["store_down"]
            store.on_commit, store.on_get = up, up
            await running.until(lambda: running.settled() >= 1_200, 180)
            await asyncio.sleep(31)
            assert running.worker.health().ok
        assert sum((await pipeline.totals(made)).values()) == 3_000
        assert await pipeline.dead_letters() == []

    play(scene)


def test_while_the_store_is_down_one_trial_message_is_pulled_in_five_seconds(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=4)
        await pipeline.prepare(made)

        def down(_: object) -> BackendError | None:
            raise DOWN

        async with Running(pipeline.worker()) as running:
            await pipeline.publish(votes(made, range(100), pipeline.clock.now()), size=1)
            await asyncio.sleep(3)
            store.on_commit, store.on_get = down, down
            await pipeline.publish(votes(made, range(100, 200), pipeline.clock.now()), size=1)
            await asyncio.sleep(120)
            before = running.worker._inbox.next_number
            await pipeline.publish(votes(made, range(200, 2_000), pipeline.clock.now()), size=1)
            await asyncio.sleep(60)
            assert 5 <= running.worker._inbox.next_number - before <= 60 / 5 + 1
            store.on_commit, store.on_get = up, up
            await running.until(lambda: running.settled() >= 2_000, 120)

    play(scene)


def test_a_commit_that_the_store_rejects_is_halved_and_a_lone_vote_is_dead_lettered(
    play: Callable[[Scene], None],
) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        content = votes(made, range(60), pipeline.clock.now())
        bad = content[37].ballot

        def reject(writes: Sequence[Write]) -> BackendError | None:
            for write in writes:
                if not isinstance(write, Delete) and bad in bytes(write.entity.properties.get("records", b"")):  # type: ignore[arg-type]  # bytes
                    raise Rejected("no such thing", status="INVALID_ARGUMENT")
            return None

        store.on_commit = reject
        await pipeline.publish(content, size=20)
        assert await pipeline.drain() == [0]
        assert sum((await pipeline.totals(made)).values()) == 59
        (letter,) = await pipeline.dead_letters()
        assert letter.attributes["reason"] == "store-rejected"
        assert len(msgspec.json.decode(letter.data)["groups"][0]["choices"]) == 1

    play(scene)


def test_when_every_commit_is_rejected_the_partition_is_parked_and_nothing_dead_lettered(
    play: Callable[[Scene], None],
) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)

        def reject(writes: Sequence[Write]) -> BackendError | None:
            if not is_probe(writes):
                raise Rejected("no", status="INVALID_ARGUMENT")
            return None

        store.on_commit = reject
        await pipeline.publish(votes(made, range(20), pipeline.clock.now()), size=1)
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(300)
            assert running.worker.health().body["parked"]
            assert await pipeline.dead_letters() == []
            store.on_commit = up
            await running.until(lambda: running.settled() >= 20, 120)
        assert sum((await pipeline.totals(made)).values()) == 20

    play(scene)


def test_an_outage_halves_no_commit_and_blames_no_vote(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        failures = 3

        def fail(writes: Sequence[Write]) -> BackendError | None:
            nonlocal failures
            if shard_writes(writes) == {keys.shard("p", 0)} and failures:
                failures -= 1
                raise DOWN
            return None

        store.on_commit = fail
        await pipeline.publish(votes(made, range(60), pipeline.clock.now()))
        assert await pipeline.drain() == [0]
        tried = [writes for writes in store.commits if shard_writes(writes) == {keys.shard("p", 0)}]
        assert len(tried) == 4, "three that failed, and one with all the votes"
        assert sum((await pipeline.totals(made)).values()) == 60
        assert await pipeline.dead_letters() == []

    play(scene)


def test_a_parked_partition_lets_its_messages_go_after_a_minute(play: Callable[[Scene], None]) -> None:
    """Another worker may have better luck with them; here they come again."""

    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made, other = poll(partitions=1), poll("other", partitions=1)
        await pipeline.prepare(made, other)

        def poison(writes: Sequence[Write]) -> BackendError | None:
            if shard_writes(writes) == {keys.shard("p", 0)}:
                raise DOWN
            return None

        store.on_commit = poison
        async with Running(pipeline.worker()) as running:
            await pipeline.publish(votes(other, range(5), pipeline.clock.now()))
            await running.until(lambda: running.settled() == 1, 5)
            await pipeline.publish(votes(made, range(5), pipeline.clock.now()), size=1)
            await asyncio.sleep(50)
            assert running.worker._inbox.next_number == 6, "each was pulled once"
            await running.until(lambda: running.worker._inbox.next_number > 6, 120)
            store.on_commit = up
            await running.until(lambda: running.settled() == 6, 120)
        assert sum((await pipeline.totals(made)).values()) == 5

    play(scene)


def test_refused_votes_are_dead_lettered_with_their_reason_and_their_neighbours_count(
    play: Callable[[Scene], None],
) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        now = pipeline.clock.now()
        made, closed = poll(), poll("closed", closes_at=now - 100 * SECOND)
        await pipeline.prepare(made, closed)
        mixed = [
            *votes(made, [1, 2], now),
            *votes(made, [3], now, "green"),
            *votes(poll("nobody"), [4], now),
            *votes(poll("__x__"), [5], now),
            *votes(closed, [6], now),
        ]
        await pipeline.publish(mixed)
        await pipeline.backend.publisher.publish("votes", [Outgoing(b"\xff", {}), Outgoing(b'{"v":9}', {})])
        assert await pipeline.drain() == [3]
        assert await pipeline.totals(made) == {"red": 1, "blue": 1}
        reasons = sorted(letter.attributes["reason"] for letter in await pipeline.dead_letters())
        assert reasons == ["poll-closed", "undecodable", "unknown-option", "unknown-poll", "unknown-poll"]

    play(scene)


def test_before_a_vote_is_refused_the_definition_is_read_again(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made, longer = poll(partitions=1), poll(partitions=1, options=("red", "blue", "green"))
        await pipeline.prepare(made)
        async with Running(pipeline.worker()) as running:
            await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
            await running.until(lambda: running.settled() == 1, 10)
            reads = sum(keys.poll("p") in asked for asked in store.gets)
            await pipeline.publish(votes(made, range(10, 20), pipeline.clock.now()))
            await running.until(lambda: running.settled() == 2, 10)
            assert sum(keys.poll("p") in asked for asked in store.gets) == reads
            await store.commit([Upsert(to_entity(longer))])
            await pipeline.publish(votes(longer, range(20, 50), pipeline.clock.now()))
            await running.until(lambda: running.settled() == 3, 10)
        assert await pipeline.totals(longer) == {"red": 20, "blue": 20, "green": 10}
        assert await pipeline.dead_letters() == []

    play(scene)


def test_a_definition_that_cannot_be_read_refuses_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll()
        await pipeline.prepare(made)

        def fail(asked: Sequence[Key]) -> BackendError | None:
            if asked[0][0][0] == keys.POLL:
                raise DOWN
            return None

        store.on_get = fail
        await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(100)
            store.on_get = up
            await running.until(lambda: running.settled() == 1, 60)
        assert sum((await pipeline.totals(made)).values()) == 10
        assert await pipeline.dead_letters() == []

    play(scene)


def test_votes_of_a_deleted_and_purged_poll_make_no_ledger_again(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        async with Running(pipeline.worker()) as running:
            await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
            await running.until(lambda: running.settled() == 1, 10)
            gone = poll(partitions=1, deleted_at=pipeline.clock.now() - 31 * 86_400 * SECOND)
            shard = keys.shard("p", 0)
            await store.commit([Upsert(to_entity(gone)), Delete(key=shard), Delete(key=keys.segment(shard, 1))])
            await pipeline.publish(votes(made, range(10, 15), pipeline.clock.now()))
            await running.until(lambda: running.settled() == 2, 60)
        assert shard not in store.store.entities  # type: ignore[attr-defined]  # the fake's
        (letter,) = await pipeline.dead_letters()
        assert letter.attributes["reason"] == "poll-deleted"

    play(scene)


def test_a_worker_refuses_to_start_on_a_store_that_ignores_the_guard(play: Callable[[Scene], None]) -> None:
    class Lenient(FakeStore):
        async def commit(self, writes: Sequence[Write]) -> Committed:
            lenient = [
                Update(entity=w.entity, base_version=w.base_version, on_conflict=OnConflict.KEEP_STORED)
                if isinstance(w, Update)
                else w
                for w in writes
            ]
            return await super().commit(lenient)

    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        await pipeline.prepare()
        for lenient in (Lenient(flavour="datastore"), Lenient(flavour="firestore")):
            store.store = lenient
            with pytest.raises(UnsafeStore):
                await pipeline.worker().run(asyncio.Event())
            assert not lenient.entities

    play(scene)


def test_sigterm_gives_back_what_is_held_within_eight_seconds(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        running = await Running(pipeline.worker()).__aenter__()
        await asyncio.sleep(1)
        store.gate = asyncio.Event()
        await pipeline.publish(votes(made, range(50), pipeline.clock.now()), size=1)
        await running.until(lambda: store.in_flight == 1, 5)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        running.stop.set()
        assert await running.task == 0
        assert loop.time() - begun < 8
        store.gate = None
        back = await pipeline.backend.puller("votes").pull(1_000)
        assert len(back) == 50

    play(scene)


def test_sigterm_flushes_what_waits(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        async with Running(pipeline.worker()) as running:
            await pipeline.publish(votes(made, [1], pipeline.clock.now()))
            await running.until(lambda: running.settled() == 1, 5)
            await pipeline.publish(votes(made, range(2, 100), pipeline.clock.now()), size=1)
            await asyncio.sleep(0.1)
        assert sum((await pipeline.totals(made)).values()) == 99
        assert await pipeline.backend.puller("votes").pull(10) == []

    play(scene)


def test_sigterm_acknowledges_what_was_settled_even_if_that_was_under_way(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        puller, publisher = pipeline.backend.puller("votes"), pipeline.backend.publisher
        acknowledge, publish = puller.acknowledge, publisher.publish

        async def slow_acknowledge(ack_ids: Sequence[str]) -> None:
            await asyncio.sleep(1)
            await acknowledge(ack_ids)

        async def slow_publish(topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
            await asyncio.sleep(1)
            return await publish(topic, messages)

        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(3)
            puller.acknowledge = slow_acknowledge  # type: ignore[method-assign]  # the slowness
            await pipeline.publish(votes(made, [1], pipeline.clock.now()))
            await publish("votes", [Outgoing(b"junk", {})])
            publisher.publish = slow_publish  # type: ignore[method-assign]  # the slowness
            await running.until(lambda: running.settled() == 2, 5)
        puller.acknowledge, publisher.publish = acknowledge, publish  # type: ignore[method-assign]
        assert running.worker.health().body["dead_letters"] == 1
        await asyncio.sleep(20)
        assert await puller.pull(10) == []
        assert [letter.data for letter in await pipeline.dead_letters()] == [b"junk"]

    play(scene)


def test_what_a_worker_holds_is_bounded_and_flows_on(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELD_MESSAGES", 4 * limits.PULL_MESSAGES)

    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)
        await pipeline.publish(votes(made, range(20_000), pipeline.clock.now()), size=1)
        async with Running(pipeline.worker()) as running:
            store.gate = asyncio.Event()
            store.gate.set()
            await asyncio.sleep(0.5)
            store.gate.clear()
            await asyncio.sleep(30)
            assert len(running.worker._inbox.held) <= limits.HELD_MESSAGES
            store.gate.set()
            await running.until(lambda: running.settled() == 20_000, 60)

    play(scene)


def test_ten_thousand_small_polls_do_not_thrash(play: Callable[[Scene], None]) -> None:
    """Each partition is loaded once, committed once, and stays; definitions are read several at a time."""

    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = [poll(f"p{number}", partitions=1) for number in range(10_000)]
        shards = {keys.shard(one.id, 0) for one in made}
        await pipeline.prepare()
        for start in range(0, len(made), 500):
            await store.commit([Upsert(to_entity(one)) for one in made[start : start + 500]])
        now = pipeline.clock.now()
        await pipeline.publish([vote for one in made for vote in votes(one, range(3), now)], size=30)
        store.gets.clear()
        store.commits.clear()
        async with Running(pipeline.worker()) as running:
            await running.until(lambda: running.settled() == 1_000, 60)
            assert running.worker.health().body["partitions"] == len(made)
            assert running.worker.health().ok
        loads = Counter(asked[0] for asked in store.gets if asked[0] in shards)
        assert loads == Counter(shards)
        assert len(store.gets) <= len(made) * 1.2
        commits = Counter(shard for writes in store.commits if not is_probe(writes) for shard in shard_writes(writes))
        assert commits.keys() == shards
        assert sum(commits.values()) <= len(made) * 1.01
        assert len(store.store.of_kind(keys.SHARD)) == len(made)  # type: ignore[attr-defined]  # the fake's
        for one in made[::100]:
            assert sum((await pipeline.totals(one)).values()) == 3

    play(scene)


def test_least_recently_used_partitions_are_evicted_and_come_back_exact(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = [poll(f"p{number}", partitions=1) for number in range(8)]
        await pipeline.prepare(*made)
        async with Running(pipeline.worker(memory=3 * (28 * 500 + 4_096))) as running:
            for turn in range(3):
                for number, one in enumerate(made):
                    content = votes(one, range(turn * 250, turn * 250 + 500), pipeline.clock.now())
                    await pipeline.publish(content)
                    await running.until(lambda: not running.worker._inbox.busy, 10)
                    await asyncio.sleep(2)
                    assert number < 4 or len(running.worker._lanes.lanes) <= 4
            assert not running.worker.health().ok or running.worker.health().body["thrashing"] is False
        for one in made:
            assert sum((await pipeline.totals(one)).values()) == 1_000

    play(scene)
