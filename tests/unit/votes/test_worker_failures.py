"""What a worker does when what it relies on turns out otherwise: the guard, answers to commits, the time to end."""

import asyncio
from collections.abc import Sequence

import pytest

from tally import limits
from tally.errors import BackendError, Refused, UnsafeStore
from tally.ports import Committed, Outgoing, Received, Write
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import batch, decoder
from tests.unit.votes.pipeline import poll, votes
from tests.unit.votes.scripted import once
from tests.unit.votes.working import DOWN, Running, is_probe, scripted, shard_writes


class Unguarded(FakeStore):
    """Keeps its guard while a worker tries it, and no longer."""

    async def commit(self, writes: Sequence[Write]) -> Committed:
        answer = await super().commit(writes)
        conflict = bool(shard_writes(writes)) and not is_probe(writes)
        return Committed(versions=answer.versions, conflict_detected=conflict)


def test_a_store_that_reports_a_conflict_stops_the_worker_at_once(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, _ = scripted(Unguarded(clock=VirtualClock()))
        made = poll(partitions=1)
        await pipeline.prepare(made)
        await pipeline.publish(votes(made, [1], pipeline.clock.now()))
        with pytest.raises(UnsafeStore, match="see the log"):
            await pipeline.worker().run(asyncio.Event())
        await asyncio.sleep(20)
        assert len(await pipeline.backend.puller("votes").pull(10)) == 1

    tally_loop.run(main())


def test_an_outage_at_the_start_is_waited_out(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, store = scripted()
        made = poll(partitions=1)
        await pipeline.prepare(made)
        await pipeline.publish(votes(made, [1], pipeline.clock.now()))
        store.on_commit = once(DOWN)
        assert await pipeline.drain() == [0]
        assert sum((await pipeline.totals(made)).values()) == 1

    tally_loop.run(main())


def test_a_commit_that_loses_again_and_again_waits_longer_and_counts_in_the_end(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, store = scripted()
        made = poll(partitions=1)
        await pipeline.prepare(made)
        losses = 0

        def lose(writes: Sequence[Write]) -> BackendError | None:
            nonlocal losses
            if shard_writes(writes) and not is_probe(writes) and losses < 5:
                losses += 1
                raise Refused("overtaken", status="ABORTED")
            return None

        store.on_commit = lose
        await pipeline.publish(votes(made, [1], pipeline.clock.now()))
        assert await pipeline.drain() == [0]
        assert losses == 5
        assert sum((await pipeline.totals(made)).values()) == 1

    tally_loop.run(main())


def test_a_shutdown_in_which_nothing_answers_ends_in_time(
    tally_loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        pipeline, _ = scripted()
        made = poll(partitions=1)
        await pipeline.prepare(made)
        running = await Running(pipeline.worker()).__aenter__()
        await asyncio.sleep(1)

        async def silent(*_: object) -> None:
            await asyncio.sleep(1_000)

        puller = pipeline.backend.puller("votes")
        puller.acknowledge = silent  # type: ignore[method-assign, assignment]  # the outage
        await pipeline.publish(votes(made, [1], pipeline.clock.now()))
        await running.until(lambda: running.settled() == 1, 5)
        await pipeline.publish(votes(made, [2], pipeline.clock.now()))
        await running.until(lambda: running.settled() == 2, 5)
        begun = asyncio.get_running_loop().time()
        await running.__aexit__()
        assert asyncio.get_running_loop().time() - begun < 8
        assert "shutdown-cut-short" in caplog.messages

    tally_loop.run(main())


def test_what_nobody_expected_ends_the_worker_and_is_not_hidden(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, _ = scripted()
        await pipeline.prepare()

        async def broken(max_messages: int) -> list[Received]:
            raise ZeroDivisionError

        pipeline.backend.puller("votes").pull = broken  # type: ignore[method-assign]  # the defect
        with pytest.raises(ExceptionGroup) as raised:
            await pipeline.worker().run(asyncio.Event())
        assert raised.group_contains(ZeroDivisionError)

    tally_loop.run(main())


def test_refused_votes_of_a_message_let_go_make_no_letter(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, _ = scripted()
        made = poll()
        await pipeline.prepare(made)
        data = batch.encode(votes(made, range(5), pipeline.clock.now()))
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(1)
            (columns,) = decoder.decode([Received("ack", "id", 0, data, {})], 7).columns
            running.worker._lanes.dead_letter(columns, "poll-closed")
            await asyncio.sleep(1)
        assert await pipeline.dead_letters() == []

    tally_loop.run(main())


def test_what_is_remembered_of_messages_let_go_is_bounded(
    tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELD_MESSAGES", 4 * limits.PULL_MESSAGES)

    async def main() -> None:
        pipeline, _ = scripted()
        await pipeline.prepare()
        newer = Outgoing(b'{"v":99,"groups":{}}', {"v": "99"})
        for _ in range(5):
            await pipeline.backend.publisher.publish("votes", [newer] * 1_000)
        async with Running(pipeline.worker()) as running:
            await asyncio.sleep(3)
            assert running.worker.health().body["newer_version"] == 5_000
            assert len(running.worker._admission._let_go_ids) == 4_000

    tally_loop.run(main())
