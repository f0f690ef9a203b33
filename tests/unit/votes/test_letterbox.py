import asyncio
from collections.abc import Mapping

import pytest

from tally.clock import SECOND
from tally.errors import NotFound, TooLarge, Unavailable
from tally.ports import Outgoing, Upsert
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.votes import dead_letter
from tally.votes.known_polls import KnownPolls
from tally.votes.letterbox import LEASE_SECONDS, Letterbox, Run, Selection
from tally.votes.polls import to_entity
from tally.votes.stream import Streams
from tests.unit.votes.letters import AT, refused, undecodable
from tests.unit.votes.pipeline import ballot, poll

ALL = Selection()


def _quiet(so_far: Run) -> None:
    """Show nothing."""


class Box:
    """A letterbox on the fakes, with the letters given."""

    def __init__(self, *letters: Outgoing, topics: tuple[str, ...] = ("votes",)) -> None:
        self.clock = VirtualClock()
        self.topics = topics
        self.backend = FakeBackend(clock=self.clock, streams=len(topics))
        self.letters = letters

    async def open(self) -> Letterbox:
        await self.backend.prepare()
        for start in range(0, len(self.letters), 20):
            await self.backend.publisher.publish("votes-dead", self.letters[start : start + 20])
        await asyncio.sleep(1)
        polls = KnownPolls(self.backend.store)
        return Letterbox(self.backend.puller("votes-dead"), self.backend.publisher, Streams(self.topics), polls)

    async def rest(self, topic: str) -> list[tuple[bytes, Mapping[str, str]]]:
        """Return what lies on a subscription now, and take it."""
        puller = self.backend.puller(topic)
        found: list[tuple[bytes, Mapping[str, str]]] = []
        while got := await puller.pull(1_000):
            found += [(message.data, message.attributes) for message in got]
            await puller.acknowledge([message.ack_id for message in got])
        return found


def test_reading_leaves_every_letter_where_it_was(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        box = Box(refused("p", "poll-closed"), refused("q", "poll-closed"), undecodable(b"junk"))
        letters = await box.open()
        assert len(await letters.read(ALL, 10)) == 3
        assert [letter.polls for letter in await letters.read(Selection(poll="q"), 10)] == [("q",)]
        assert len(await letters.read(ALL, 2)) == 2
        one = (await letters.read(Selection(reason="undecodable"), 10))[0]
        assert (await letters.show(one.id)).data == b"junk"
        with pytest.raises(NotFound, match="nobody"):
            await letters.show("nobody")
        assert len(await box.rest("votes-dead")) == 3

    tally_loop.run(main())


def test_a_long_scan_sees_each_letter_once(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        box = Box(*(refused("p", "poll-closed", 1, number) for number in range(2_500)))
        letters = await box.open()
        seen = await letters.read(ALL, 10_000)
        assert len(seen) == len({letter.id for letter in seen}) == 2_500

    tally_loop.run(main())


def test_a_replay_keeps_ballots_and_the_first_publication_and_takes_what_is_meant(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        meant = refused("p", "poll-closed", 3)
        box = Box(meant, refused("p", "unknown-option"), refused("q", "poll-closed"), undecodable(b"junk"))
        letters = await box.open()
        chosen = Selection(poll="p", reason="poll-closed")
        dry = await letters.replay(chosen, dry_run=True, progress=_quiet)
        assert (dry.letters, dry.votes, dry.others) == (1, 3, 3)
        assert await box.rest("votes") == []
        done = await letters.replay(chosen, dry_run=False, progress=_quiet)
        assert (done.letters, done.votes, done.others, dict(done.reasons)) == (1, 3, 3, {"poll-closed": 1})
        assert await box.rest("votes") == [(meant.data, {"v": "1", "published_at": str(AT - SECOND)})]
        assert len(await box.rest("votes-dead")) == 3

    tally_loop.run(main())


def test_what_cannot_be_decoded_is_left_by_a_replay_and_taken_by_a_drop(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        box = Box(refused("p", "poll-closed"), undecodable(b"junk"))
        letters = await box.open()
        replayed = await letters.replay(ALL, dry_run=False, progress=_quiet)
        assert (replayed.letters, replayed.unsound) == (1, 1)
        dropped = await letters.drop(ALL, dry_run=False, progress=_quiet)
        assert (dropped.letters, dropped.votes) == (1, 0)
        assert await box.rest("votes-dead") == []

    tally_loop.run(main())


def test_a_replay_that_cannot_be_published_keeps_the_letters(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        box = Box(refused("p", "poll-closed"))
        letters = await box.open()

        async def fail(topic: str, messages: object) -> None:
            raise Unavailable("down", status="UNAVAILABLE")

        box.backend.pubsub.publish = fail  # type: ignore[method-assign, assignment]  # the outage
        with pytest.raises(Unavailable):
            await letters.replay(ALL, dry_run=False, progress=_quiet)
        del box.backend.pubsub.publish
        assert len(await box.rest("votes-dead")) == 1

    tally_loop.run(main())


def test_a_vote_that_is_refused_again_during_a_replay_is_not_replayed_twice(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        box = Box(refused("p", "poll-closed"))
        letters = await box.open()

        async def worker() -> None:
            """Refuse whatever comes, as a worker does while the poll is still closed."""
            puller = box.backend.puller("votes")
            while True:
                for message in await puller.pull(10):
                    letter = dead_letter.refused(message.message_id, AT - SECOND, "poll-closed", message.data)
                    await box.backend.publisher.publish("votes-dead", [letter])
                    await puller.acknowledge([message.ack_id])

        refusing = asyncio.create_task(worker())
        done = await letters.replay(ALL, dry_run=False, progress=_quiet)
        refusing.cancel()
        assert (done.letters, done.again) == (1, 1)
        assert len(await box.rest("votes-dead")) == 1

    tally_loop.run(main())


def test_one_publish_of_a_replay_stays_within_the_limits(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        sizes: list[int] = []
        box = Box(*(refused("p", "poll-closed", 9_000, 9_000 * number) for number in range(40)))
        letters = await box.open()
        publish = box.backend.publisher.publish

        async def measure(topic: str, messages: list[Outgoing]) -> object:
            sizes.append(sum(len(message.data) for message in messages))
            return await publish(topic, messages)

        box.backend.pubsub.publish = measure  # type: ignore[method-assign, assignment]  # looks, then goes on
        done = await letters.replay(ALL, dry_run=False, progress=_quiet)
        assert (done.letters, done.votes) == (40, 40 * 9_000)
        assert max(sizes) <= 9_000_000 < sum(sizes)

    tally_loop.run(main())


def test_a_slow_replay_keeps_the_letters_that_it_has_yet_to_publish(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        box = Box(*(refused("p", "poll-closed", 1, number) for number in range(5)))
        letters = await box.open()
        publish, puller = box.backend.publisher.publish, box.backend.puller("votes-dead")
        others: list[object] = []

        async def slow(topic: str, messages: list[Outgoing]) -> object:
            for _ in range(20):
                await asyncio.sleep(LEASE_SECONDS / 10)
                others.extend(await puller.pull(10))
            return await publish(topic, messages)

        box.backend.pubsub.publish = slow  # type: ignore[method-assign, assignment]  # looks, then goes on
        done = await letters.replay(ALL, dry_run=False, progress=_quiet)
        assert (done.letters, others) == (5, [])

    tally_loop.run(main())


def test_leases_that_cannot_be_extended_stop_no_replay(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        box = Box(*(refused("p", "poll-closed", 1, number) for number in range(5)))
        letters = await box.open()

        async def failing(ack_ids: object, seconds: int) -> None:
            raise Unavailable("down", status="UNAVAILABLE")

        box.backend.puller("votes-dead").extend = failing  # type: ignore[method-assign]  # the outage
        assert (await letters.replay(ALL, dry_run=False, progress=_quiet)).letters == 5
        assert len(await box.rest("votes")) == 5

    tally_loop.run(main())


def test_letters_that_are_not_meant_are_held_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, tally_loop: VirtualLoop
) -> None:
    monkeypatch.setattr("tally.limits.HELD_LETTERS", 10)

    async def main() -> None:
        box = Box(*(refused("p", "poll-closed", 1, number) for number in range(11)))
        letters = await box.open()
        with pytest.raises(TooLarge, match="over 10 letters"):
            await letters.replay(Selection(poll="q"), dry_run=False, progress=_quiet)
        assert len(await box.rest("votes-dead")) == 11

    tally_loop.run(main())


def test_a_run_ends_at_its_limit_and_says_that_there_is_more(
    monkeypatch: pytest.MonkeyPatch, tally_loop: VirtualLoop
) -> None:
    monkeypatch.setattr("tally.limits.LETTERS_PER_RUN", 1_000)

    async def main() -> None:
        box = Box(*(refused("p", "poll-closed", 1, number) for number in range(1_500)))
        letters = await box.open()
        done = await letters.drop(ALL, dry_run=False, progress=_quiet)
        assert (done.letters, done.more) == (1_000, True)
        rest = await letters.drop(ALL, dry_run=False, progress=_quiet)
        assert (rest.letters, rest.more) == (500, False)

    tally_loop.run(main())


def test_a_replay_goes_to_the_stream_that_takes_such_votes_now(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        made, topics = poll("p", partitions=4), ("votes", "votes-1", "votes-2")
        letters = [refused("p", "unknown-poll", 1, number) for number in range(20)]
        box = Box(*letters, refused("unknown", "unknown-poll", 1), topics=topics)
        await box.backend.store.commit([Upsert(to_entity(made))])
        done = await (await box.open()).replay(ALL, dry_run=False, progress=_quiet)
        assert done.letters == 21
        found = {topic: {data for data, _ in await box.rest(topic)} for topic in topics}
        for number, letter in enumerate(letters):
            partition = int.from_bytes(ballot("p", number)) % 4
            assert letter.data in found[Streams(topics).topic("p", partition)]
        assert sum(map(len, found.values())) == 21
        assert await box.rest("votes-dead") == []

    tally_loop.run(main())
