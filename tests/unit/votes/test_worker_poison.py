"""Votes and partitions that cannot be committed: parked, halved or dead-lettered, and their neighbours count."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tally.clock import SECOND
from tally.errors import BackendError, Rejected, Unavailable
from tally.ports import Delete, Outgoing, Upsert, Write
from tally.votes import keys
from tally.votes.polls import to_entity
from tests.unit.votes.pipeline import Pipeline, poll, votes
from tests.unit.votes.scripted import ScriptedStore
from tests.unit.votes.working import DOWN, Running, Scene, is_probe, shard_writes, up


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


def test_messages_that_are_let_go_again_and_again_are_no_movement(play: Callable[[Scene], None]) -> None:
    async def scene(pipeline: Pipeline, store: ScriptedStore) -> None:
        made = poll(partitions=1)
        await pipeline.prepare(made)

        def poison(writes: Sequence[Write]) -> BackendError | None:
            if keys.shard(made.id, 0) in shard_writes(writes):
                raise Unavailable("poison", status="INTERNAL")
            return None

        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(1)
            store.on_commit = poison
            await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
            await asyncio.sleep(40)
            idle = 0
            for _ in range(300):
                assert not running.worker.health().ok
                idle += not running.worker.health().body["held"]
                await asyncio.sleep(1)
            assert idle > 10
            store.on_commit = up
            await running.until(lambda: running.settled() == 1, 130)
            await asyncio.sleep(2)
            assert running.worker.health().ok

    play(scene)
