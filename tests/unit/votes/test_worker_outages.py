"""What a worker does while its store is down or slow, and what it never does then."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tally.errors import BackendError, Unavailable
from tally.ports import Key, Write
from tally.votes import keys
from tests.unit.votes.pipeline import Pipeline, poll, votes
from tests.unit.votes.scripted import ScriptedStore
from tests.unit.votes.working import DOWN, Running, Scene, shard_writes, up


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
