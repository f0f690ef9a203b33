from collections.abc import Sequence
from dataclasses import replace

import pytest

from tally.clock import SECOND
from tally.errors import BackendError, Conflict, Unavailable
from tally.ports import Write
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import keys
from tally.votes.poll import Poll
from tally.votes.purge import PURGE_AFTER, purge
from tests.unit.votes.pipeline import Pipeline, poll, votes
from tests.unit.votes.scripted import ScriptedStore, once

DAY = 86_400 * SECOND


def test_a_ledger_is_purged_31_days_after_its_poll_was_deleted_and_no_sooner(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline = Pipeline()
        now = pipeline.clock.now()
        gone, other = poll(deleted_at=now), poll("other")
        await pipeline.prepare(gone, other)
        await pipeline.publish([*votes(gone, range(50), now - SECOND), *votes(other, range(50), now)])
        await pipeline.drain()
        store = pipeline.backend.store
        assert isinstance(store, FakeStore)
        with pytest.raises(Conflict, match="may be purged from"):
            await purge(store, gone, now + PURGE_AFTER - 1)
        with pytest.raises(Conflict, match="not deleted"):
            await purge(store, other, now + PURGE_AFTER)
        before = await pipeline.totals(other)
        assert await purge(store, gone, now + PURGE_AFTER) == 8
        assert not [entity for entity in store.of_kind(keys.SHARD) if str(entity.key[0][1]).startswith("p:")]
        assert not [entity for entity in store.of_kind(keys.SEGMENT) if str(entity.key[0][1]).startswith("p:")]
        assert await pipeline.totals(other) == before
        assert await purge(store, gone, now + PURGE_AFTER) == 0

    tally_loop.run(main())


async def counted_and_deleted(pipeline: Pipeline) -> Poll:
    """Make a poll of one partition with fifty votes that is deleted now."""
    now = pipeline.clock.now()
    gone = poll(partitions=1, deleted_at=now)
    await pipeline.prepare(gone)
    await pipeline.publish(votes(gone, range(50), now - SECOND))
    await pipeline.drain()
    return gone


@pytest.mark.parametrize(("reply", "left"), [(False, 2), (True, 0)], ids=["the request", "the reply"])
def test_a_purge_whose_commit_is_lost_is_done_by_running_it_again(
    tally_loop: VirtualLoop, reply: bool, left: int
) -> None:
    async def main() -> None:
        pipeline = Pipeline()
        now = pipeline.clock.now()
        gone = await counted_and_deleted(pipeline)
        store = ScriptedStore(pipeline.backend.store)
        store.on_commit = once(Unavailable("lost", status="UNAVAILABLE"), after=reply)
        with pytest.raises(Unavailable):
            await purge(store, gone, now + PURGE_AFTER)
        assert await purge(store, gone, now + PURGE_AFTER) == left

    tally_loop.run(main())


def test_a_late_commit_of_a_worker_is_purged_with_the_rest(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline = Pipeline()
        now = pipeline.clock.now()
        gone = await counted_and_deleted(pipeline)
        fake = pipeline.backend.store
        assert isinstance(fake, FakeStore)
        store = ScriptedStore(fake)
        shard = keys.shard("p", 0)

        def commit_between(_: Sequence[Write]) -> BackendError | None:
            if len(store.commits) == 1:
                entity = fake.entities[shard]
                fake.entities[shard] = replace(entity, version=entity.version + 1_000)
            return None

        store.on_commit = commit_between
        assert await purge(store, gone, now + PURGE_AFTER) == 2
        assert len(store.commits) == 2
        assert shard not in fake.entities

    tally_loop.run(main())
