"""The worker over the fakes, on virtual time: what it counts, holds, asks for and gives back."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tally import limits
from tally.clock import SECOND
from tally.errors import UnsafeStore
from tally.ports import Committed, Delete, OnConflict, Outgoing, Update, Upsert, Write
from tally.testing.store import FakeStore
from tally.votes import keys, ledger
from tally.votes.polls import to_entity
from tests.unit.votes.pipeline import Pipeline, poll, votes
from tests.unit.votes.scripted import ScriptedStore
from tests.unit.votes.working import Running, Scene, is_probe, shard_writes


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
