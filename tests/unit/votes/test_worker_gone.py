"""What a worker does with votes of a poll that is gone, with its ledger or without, or is another one now."""

import asyncio
from collections.abc import Sequence

import pytest

from tally.clock import SECOND
from tally.errors import BackendError
from tally.ports import Delete, Key, Received, Write
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import decoder, keys
from tally.votes.recount import recount
from tests.unit.votes.pipeline import poll, votes
from tests.unit.votes.working import DOWN, Running, is_probe, scripted, shard_writes, up

DAY = 86_400 * SECOND
SHARD = keys.shard("p", 0)


def test_a_replay_to_a_poll_whose_ledger_may_be_purged_any_moment_makes_none(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, _ = scripted()
        deleted_at = pipeline.clock.now() - 31 * DAY
        gone = poll(partitions=1, deleted_at=deleted_at)
        await pipeline.prepare(gone)
        await pipeline.publish(votes(gone, [1], deleted_at - SECOND), published_at=str(deleted_at))
        assert await pipeline.drain() == [0]
        (letter,) = await pipeline.dead_letters()
        assert letter.attributes["reason"] == "poll-deleted"
        assert not (await pipeline.store.get([SHARD])).found

    tally_loop.run(main())


def test_votes_that_waited_in_a_frozen_worker_make_no_shard_of_a_poll_purged_meanwhile(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, _ = scripted()
        made = poll("p", partitions=1)
        await pipeline.prepare(made)
        async with Running(pipeline.worker()) as running:
            known = await running.worker._polls.read("p")
            lanes = running.worker._lanes
            lane = lanes._lane(made, 0)
            await pipeline.prepare(poll("p", partitions=1, deleted_at=pipeline.clock.now() - 31 * DAY))
            assert await lanes.may_insert(lane, known.sent)
            await asyncio.sleep(61)
            assert not await lanes.may_insert(lane, known.sent)

    tally_loop.run(main())


@pytest.mark.parametrize("outage", [False, True])
def test_a_ledger_that_is_gone_while_its_poll_is_not_is_told_and_no_vote_of_it_refused(
    tally_loop: VirtualLoop, caplog: pytest.LogCaptureFixture, outage: bool
) -> None:
    """As after a restore of an older backup: what was counted is gone, what comes is counted."""

    async def main() -> None:
        pipeline, store = scripted()
        made = poll(partitions=1)
        await pipeline.prepare(made)

        def unreadable(asked: Sequence[Key]) -> BackendError | None:
            if asked[0][0][0] == keys.POLL:
                raise DOWN
            return None

        async with Running(pipeline.worker()) as running:
            await pipeline.publish(votes(made, [1], pipeline.clock.now()))
            await running.until(lambda: running.settled() == 1, 10)
            await store.commit([Delete(key=SHARD), Delete(key=keys.segment(SHARD, 1))])
            store.on_get = unreadable if outage else up
            await pipeline.publish(votes(made, [2], pipeline.clock.now()))
            await asyncio.sleep(20)
            store.on_get = up
            await running.until(lambda: running.settled() == 2, 60)
        assert sum((await pipeline.totals(made)).values()) == 1
        assert await pipeline.dead_letters() == []
        problems = {getattr(record, "fields", {}).get("problem") for record in caplog.records}
        assert problems & {"purged", "UNAVAILABLE"} == {"UNAVAILABLE" if outage else "purged"}

    tally_loop.run(main())


@pytest.mark.parametrize("seen", [True, False], ids=["a partition held", "a new partition"])
def test_votes_judged_by_the_definition_of_a_poll_that_was_replaced_are_judged_again(
    tally_loop: VirtualLoop, seen: bool
) -> None:
    async def main() -> None:
        store = FakeStore()
        pipeline, _ = scripted(store)
        made = poll("p", ["red", "blue"], partitions=1)
        await pipeline.prepare(made)
        async with Running(pipeline.worker()) as running:
            if seen:
                await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
            else:
                await running.worker._polls.read("p")
            await asyncio.sleep(5)
            await store.commit([Delete(key=key) for key in list(store.entities)])
            again = poll("p", ["blue", "red"], partitions=1)
            await pipeline.prepare(again)
            await pipeline.publish(votes(again, range(10, 20), pipeline.clock.now(), "red"))
            await asyncio.sleep(60)
        assert await pipeline.totals(again) == {"blue": 0, "red": 10}

    tally_loop.run(main())


def test_a_lane_of_a_poll_that_was_replaced_is_told_of_and_ended_as_others_are(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, store = scripted()
        made = poll("p", ["red", "blue"], partitions=1)
        await pipeline.prepare(made)

        def poisoned(writes: Sequence[Write]) -> None:
            if shard_writes(writes) and not is_probe(writes):
                raise DOWN

        store.on_commit = poisoned
        async with Running(pipeline.worker()) as running:
            await pipeline.publish(votes(made, [1], pipeline.clock.now()))
            await running.until(lambda: bool(running.worker.health().body["parked"]), 60)
            again = poll("p", ["green"], partitions=1)
            await pipeline.prepare(again)
            await pipeline.publish(votes(again, [2], pipeline.clock.now(), "green"))
            await running.until(lambda: len(running.worker._lanes.running) == 2, 10)
            assert len(running.worker._lanes.parked()) == 1
            ending = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - ending < 3

    tally_loop.run(main())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("options", [["red", "blue"], ["blue", "red"]], ids=["as it was", "in another order"])
def test_after_the_store_was_wiped_the_same_voters_count_again_each_for_what_they_say(
    tally_loop: VirtualLoop, workers: int, options: list[str]
) -> None:
    """One of two workers begins the ledger again; the other holds one that is no prefix of it."""

    async def main() -> None:
        store = FakeStore()
        pipeline, _ = scripted(store)
        made = poll("p", ["red", "blue"], partitions=1)
        await pipeline.prepare(made)
        stop = asyncio.Event()
        running = [asyncio.create_task(pipeline.worker().run(stop)) for _ in range(workers)]
        for again in (made, poll("p", options, partitions=1)):
            await store.commit([Delete(key=key) for key in list(store.entities)])
            await pipeline.prepare(again)
            for number in range(10):
                await pipeline.publish(votes(again, [number], pipeline.clock.now(), "red"))
                await asyncio.sleep(0.7)
            await asyncio.sleep(60)
        stop.set()
        assert await asyncio.gather(*running) == [0] * workers
        assert await pipeline.totals(again) == {"red": 10, "blue": 0}
        assert not (await recount(store, again)).differences

    tally_loop.run(main())


def test_votes_for_a_poll_that_vanished_with_its_ledger_become_letters_that_name_their_options(
    tally_loop: VirtualLoop,
) -> None:
    async def main() -> None:
        store = FakeStore()
        pipeline, _ = scripted(store)
        made = poll("p", partitions=1)
        await pipeline.prepare(made)
        await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(5)
            await store.commit([Delete(key=key) for key in list(store.entities)])
            await pipeline.publish(votes(made, range(10, 20), pipeline.clock.now()))
            await asyncio.sleep(30)
            assert not running.worker._inbox.busy
        letters = await pipeline.dead_letters()
        assert {letter.attributes["reason"] for letter in letters} == {"poll-deleted"}
        decoded = decoder.decode([Received("", "", 1, letter.data, {}) for letter in letters])
        (columns,) = decoded.columns
        assert (len(columns), set(columns.options)) == (10, {"red", "blue"})

    tally_loop.run(main())
