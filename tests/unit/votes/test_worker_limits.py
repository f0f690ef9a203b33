"""The worker at its bounds, and one past them: what it holds, asks for, sends and keeps in memory."""

import asyncio
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from tally import limits
from tally.errors import BackendError, Unavailable
from tally.ports import Key, Lookup, Outgoing, Received, Write
from tally.testing.faults import FaultyPublisher, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.store import key_of
from tally.votes import keys
from tally.votes.decoder import Decoded
from tally.votes.inbox import Inbox
from tally.votes.lanes import _LANE_BYTES
from tests.unit.votes.pipeline import Pipeline, ballots_of, poll, votes
from tests.unit.votes.scripted import ScriptedStore


class Service:
    """A Puller and Publisher that notes what it is asked."""

    def __init__(self) -> None:
        self.pulls: list[int] = []
        self.acks: list[int] = []
        self.extensions: list[int] = []
        self.published: list[tuple[int, int]] = []

    async def pull(self, max_messages: int) -> Sequence[Received]:
        self.pulls.append(max_messages)
        return []

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        self.acks.append(len(ack_ids))

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        self.extensions.append(len(ack_ids))

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        self.published.append((len(messages), sum(len(data) for data, _ in messages)))
        return [""] * len(messages)


def received(count: int, size: int = 1) -> list[Received]:
    return [Received(f"ack-{number}", f"id-{number}", 1, bytes(size), {}) for number in range(count)]


def take(inbox: Inbox, messages: Sequence[Received], *, votes: int = 1, letters: Sequence[Outgoing] = ()) -> range:
    """Hold messages with so many votes and such dead letters each; return their numbers."""
    numbers = range(inbox.next_number, inbox.next_number + len(messages))
    decoded = Decoded((), dict.fromkeys(numbers, votes), {number: list(letters) for number in numbers if letters}, [])
    inbox.receive(messages)
    inbox.take(messages, [message.publish_time for message in messages], decoded)
    return numbers


async def has_room(inbox: Inbox) -> bool:
    try:
        async with asyncio.timeout(1):
            await inbox.reserve()
    except TimeoutError:
        return False
    inbox.release_room()
    return True


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize(
    ("messages", "size"),
    [
        pytest.param(limits.HELD_MESSAGES - limits.PULL_MESSAGES, 1, id="HELD_MESSAGES"),
        pytest.param(86, 1_000_000, id="HELD_BYTES"),
    ],
)
def test_a_pull_needs_room_for_its_largest_answer(
    tally_loop: VirtualLoop, messages: int, size: int, past: bool
) -> None:
    assert messages * size == limits.HELD_BYTES - limits.PULL_BYTES or size == 1

    async def main() -> None:
        inbox = Inbox(Service(), Service(), "dead")
        content = received(1, size) * messages
        take(inbox, [*content, *received(int(past))])
        assert await has_room(inbox) is not past

    tally_loop.run(main())


def test_room_that_was_reserved_counts(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        inbox = Inbox(Service(), Service(), "dead")
        for _ in range(limits.HELD_BYTES // limits.PULL_BYTES):
            await inbox.reserve()
        assert not await has_room(inbox)
        inbox.release_room()
        assert await has_room(inbox)

    tally_loop.run(main())


def test_what_waits_for_its_acknowledgement_takes_room_until_its_lease_has_ended(tally_loop: VirtualLoop) -> None:
    class Deaf(Service):
        async def acknowledge(self, ack_ids: Sequence[str]) -> None:
            raise Unavailable("down", status="UNAVAILABLE")

    async def main() -> None:
        service = Deaf()
        inbox = Inbox(service, service, "dead")
        keeping = asyncio.create_task(inbox.run())
        numbers = take(inbox, received(1) * (limits.HELD_MESSAGES - limits.PULL_MESSAGES + 1))
        inbox.settle(np.array(numbers))
        assert not inbox.held
        assert not await has_room(inbox)
        assert inbox.busy
        await asyncio.sleep(limits.ACK_DEADLINE_SECONDS)
        assert await has_room(inbox)
        assert not inbox.busy
        keeping.cancel()

    tally_loop.run(main())


def test_ids_are_sent_a_thousand_at_a_time(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        service = Service()
        inbox = Inbox(service, service, "dead")
        keeping = asyncio.create_task(inbox.run())
        numbers = take(inbox, received(limits.ACK_IDS + 1))
        await asyncio.sleep(7)
        assert service.extensions == [limits.ACK_IDS, 1]
        inbox.settle(np.array(numbers))
        await asyncio.sleep(1)
        assert service.acks == [limits.ACK_IDS, 1]
        take(inbox, received(limits.ACK_IDS + 1))
        service.extensions.clear()
        await inbox.release_all()
        assert service.extensions == [limits.ACK_IDS, 1]
        keeping.cancel()

    tally_loop.run(main())


@pytest.mark.parametrize(
    ("letters", "size", "calls"),
    [
        (limits.PUBLISH_MESSAGES, 1, 1),
        (limits.PUBLISH_MESSAGES + 1, 1, 2),
        (9, 999_000, 1),
        (10, 999_000, 2),
    ],
)
def test_one_publish_of_dead_letters_stays_within_its_limits(
    tally_loop: VirtualLoop, letters: int, size: int, calls: int
) -> None:
    async def main() -> None:
        service = Service()
        inbox = Inbox(service, service, "dead")
        take(inbox, received(letters), votes=0, letters=[Outgoing(bytes(size), {})])
        await inbox.flush()
        assert len(service.published) == calls
        assert sum(count for count, _ in service.published) == letters
        for count, total in service.published:
            assert count <= limits.PUBLISH_MESSAGES
            assert total <= limits.PUBLISH_BYTES

    tally_loop.run(main())


def test_a_pull_asks_for_no_more_than_its_limit(tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        pipeline = Pipeline()
        await pipeline.prepare(poll())
        asked: list[int] = []
        puller = pipeline.backend.pubsub.puller("votes")
        pull = puller.pull

        async def note(count: int) -> Sequence[Received]:
            asked.append(count)
            return await pull(count)

        monkeypatch.setattr(puller, "pull", note)
        await pipeline.drain()
        assert set(asked) == {limits.PULL_MESSAGES}

    tally_loop.run(main())


@pytest.mark.parametrize("short_of", [0, 1])
def test_partitions_are_evicted_only_past_the_memory_bound(tally_loop: VirtualLoop, short_of: int) -> None:
    """The bound, CACHED_RECORD_BYTES unless set, is met exactly by two partitions of 100 ballots."""

    async def main() -> None:
        pipeline, made = Pipeline(), [poll("a", partitions=1), poll("b", partitions=1)]
        await pipeline.prepare(*made)
        worker = pipeline.worker(memory=2 * (100 * 28 + _LANE_BYTES) - short_of)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        for one in made:
            await pipeline.publish(votes(one, range(100), pipeline.clock.now()))
            await asyncio.sleep(5)
        assert worker.health().body["partitions"] == 2 - short_of
        stop.set()
        await running
        assert pipeline.worker()._lanes._memory == limits.CACHED_RECORD_BYTES

    tally_loop.run(main())


def test_a_partition_with_votes_waiting_is_never_evicted(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, made = Pipeline(), poll("a", partitions=1)
        await pipeline.prepare(made)
        store = ScriptedStore(pipeline.store)
        pipeline.store = store
        worker = pipeline.worker(memory=1)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        await asyncio.sleep(1)
        store.gate = asyncio.Event()
        await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
        await asyncio.sleep(20)
        assert worker.health().body["partitions"] == 1
        store.gate.set()
        await asyncio.sleep(5)
        assert worker.health().body["partitions"] == 0
        stop.set()
        await running
        assert sum((await pipeline.totals(made)).values()) == 10

    tally_loop.run(main())


def test_two_partitions_are_loaded_at_a_time(tally_loop: VirtualLoop) -> None:
    class Slow(ScriptedStore):
        loading = most = 0

        async def get(self, asked: Sequence[Key]) -> Lookup:
            shard = asked[0][0][0] == keys.SHARD and "~" not in str(asked[0])  # not a probe's
            self.loading += shard
            self.most = max(self.most, self.loading)
            await asyncio.sleep(0.5)
            answer = await super().get(asked)
            self.loading -= shard
            return answer

    async def main() -> None:
        pipeline, made = Pipeline(), poll(partitions=8)
        await pipeline.prepare(made)
        store = Slow(pipeline.store)
        pipeline.store = store
        await pipeline.publish(votes(made, range(200), pipeline.clock.now()))
        assert await pipeline.drain() == [0]
        assert store.most == limits.CONCURRENT_LOADS
        assert sum((await pipeline.totals(made)).values()) == 200

    tally_loop.run(main())


def test_parked_partitions_hold_no_more_than_a_quarter(
    tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More votes for a poisoned partition than the worker may hold at all, and its neighbours still go on."""
    monkeypatch.setattr(limits, "HELD_MESSAGES", 4 * limits.PULL_MESSAGES)

    async def main() -> None:
        pipeline, bad, good = Pipeline(), poll("bad", partitions=1), poll("good", partitions=1)
        await pipeline.prepare(bad, good)
        store = ScriptedStore(pipeline.store)
        pipeline.store = store

        def poison(writes: Sequence[Write]) -> BackendError | None:
            if key_of(writes[0]) == keys.shard("bad", 0):
                raise Unavailable("poisoned", status="UNAVAILABLE")
            return None

        store.on_commit = poison
        worker = pipeline.worker()
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        await pipeline.publish(votes(good, range(10), pipeline.clock.now()))
        await asyncio.sleep(2)
        await pipeline.publish(votes(bad, range(6_000), pipeline.clock.now()), size=1)
        for second in range(120):
            await pipeline.publish(votes(good, range(10 + second, 11 + second), pipeline.clock.now()))
            await asyncio.sleep(1)
            parked = [lane for lane in worker._lanes.parked() if sum(map(len, lane.waiting))]
            held = sum(len(part) for lane in parked for part in lane.waiting)
            assert held <= limits.HELD_MESSAGES // 4 + limits.PULL_MESSAGES
        assert sum((await pipeline.totals(good)).values()) > 100
        store.on_commit = lambda writes: None
        await asyncio.sleep(150)
        stop.set()
        await running
        assert sum((await pipeline.totals(bad)).values()) == 6_000
        assert sum((await pipeline.totals(good)).values()) == 130
        assert await pipeline.dead_letters() == []

    tally_loop.run(main())


@pytest.mark.parametrize("stuck", ["definition unreadable", "dead letters unpublishable"])
def test_what_cannot_be_settled_holds_no_more_than_a_quarter(
    tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    """More votes that are stuck than the worker may hold at all, and those of other polls still go on."""
    monkeypatch.setattr(limits, "PULL_MESSAGES", 100)
    monkeypatch.setattr(limits, "HELD_MESSAGES", 400)

    async def main() -> None:
        pipeline, bad, good = Pipeline(), poll("bad", partitions=1), poll("good", partitions=1)
        await pipeline.prepare(bad, good)
        plan = Plan(Random(1), {})
        publisher = FaultyPublisher(pipeline.backend.publisher, Network(plan))
        store = ScriptedStore(pipeline.store)
        pipeline.store = store
        worker = pipeline.worker(publisher=publisher)
        down = Unavailable("down", status="UNAVAILABLE")

        def unreadable(asked: Sequence[Key]) -> BackendError | None:
            if keys.poll("bad") in asked:
                raise down
            return None

        if stuck == "definition unreadable":
            store.on_get = unreadable
        else:
            plan.break_down("publish", down)
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        await pipeline.publish(votes(good, range(10), pipeline.clock.now()))
        await asyncio.sleep(2)
        option = None if stuck == "definition unreadable" else "none"
        await pipeline.publish(votes(bad, range(600), pipeline.clock.now(), option), size=1)
        await asyncio.sleep(0.5)  # what is let go comes again on the second, and is let go in the same instant
        for second in range(120):
            await pipeline.publish(votes(good, range(10 + second, 11 + second), pipeline.clock.now()))
            await asyncio.sleep(1)
            inbox = worker._inbox
            assert len(inbox.held) + len(inbox._lettered) <= limits.HELD_MESSAGES // 4 + 1
        assert sum((await pipeline.totals(good)).values()) > 100
        assert worker.health().ok
        store.on_get = lambda asked: None
        plan.break_down("publish", None)
        await asyncio.sleep(100)
        stop.set()
        await running
        dead = ballots_of(await pipeline.dead_letters())
        assert len(dead) + sum((await pipeline.totals(bad)).values()) == 600
        assert bool(dead) is (option is not None)
        assert sum((await pipeline.totals(good)).values()) == 130

    tally_loop.run(main())
