import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import msgspec
import pytest

from tally.clock import SECOND
from tally.errors import Busy, Rejected, Unavailable
from tally.limits import (
    MESSAGE_BYTES,
    MESSAGE_VOTES,
    OPTION_ID_BYTES,
    VOTES_PER_REQUEST,
    WAITING_BYTES,
    WAITING_VOTES,
)
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.pubsub import FakePubSub
from tally.votes.batch import Vote
from tally.votes.microbatch import LINGER_SECONDS, MicroBatcher
from tally.votes.stream import Streams
from tests.trouble import TroubledPublisher, unseen_errors


class Desk:
    def __init__(self, clock: VirtualClock) -> None:
        pubsub = FakePubSub(clock=clock)
        pubsub.create_topic("votes")
        for name in ("other", "third", "fourth"):
            pubsub.create_topic(name)
        self.clock = clock
        self.publisher = TroubledPublisher(pubsub)
        self.batcher = MicroBatcher(self.publisher, clock, Random(1))

    def votes(self, number: int, *, option: str = "red", poll: str = "lunch") -> list[Vote]:
        at = self.clock.now()
        return [Vote(poll, option, place.to_bytes(16, "big"), at + place) for place in range(number)]

    @property
    def sizes(self) -> list[int]:
        return [
            sum(len(group["choices"]) for group in msgspec.json.decode(message.data)["groups"])
            for message in self.publisher.messages
        ]


Scene = Callable[[Desk], Awaitable[None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> Play:
    async def run(scene: Scene) -> None:
        await scene(Desk(tally_clock))

    return lambda scene: tally_loop.run(run(scene))


def time() -> float:
    return asyncio.get_running_loop().time()


def test_requests_that_come_within_the_linger_share_a_message(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        done = [desk.batcher.add("votes", desk.votes(1)) for _ in range(100)]
        started = time()
        await asyncio.gather(*done)
        assert time() - started == pytest.approx(LINGER_SECONDS)
        await desk.batcher.add("votes", desk.votes(3))
        assert desk.sizes == [100, 3]

    play(scene)


def test_each_topic_has_a_batch_of_its_own(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        await asyncio.gather(desk.batcher.add("votes", desk.votes(2)), desk.batcher.add("other", desk.votes(1)))
        assert sorted(desk.sizes) == [1, 2]

    play(scene)


def test_with_more_streams_a_batch_waits_for_longer_and_keeps_its_votes(play: Play) -> None:
    """Four streams share a steady trickle: each message holds as many votes as that of one stream alone."""

    async def scene(desk: Desk) -> None:
        sizes = []
        for count in (1, 4):
            streams = Streams(("votes", "other", "third", "fourth")[:count])
            desk.batcher = MicroBatcher(desk.publisher, desk.clock, Random(1), streams.linger_seconds)
            desk.publisher.messages.clear()
            for number in range(1_600):
                desk.batcher.add(streams.topic("p", number), desk.votes(1))
                await asyncio.sleep(0.00025)
            await desk.batcher.close()
            sizes.append(sum(desk.sizes) / len(desk.sizes))
        assert sizes[1] == pytest.approx(sizes[0], rel=0.1)

    play(scene)


def test_one_request_that_is_cancelled_takes_no_other_with_it(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        desk.publisher.seconds = 1.0
        futures = [desk.batcher.add("votes", desk.votes(1)) for _ in range(5)]
        await asyncio.sleep(0.5)
        futures[0].cancel()
        await asyncio.gather(*futures[1:])
        assert desk.sizes == [5]

    play(scene)


def test_a_message_holds_at_most_its_votes(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        done = [desk.batcher.add("votes", desk.votes(1_000)) for _ in range(MESSAGE_VOTES // 1_000)]
        assert not desk.publisher.calls
        done.append(desk.batcher.add("votes", desk.votes(1)))
        await asyncio.gather(*done)
        assert desk.sizes == [MESSAGE_VOTES, 1]

    play(scene)


def test_a_message_never_has_more_bytes_than_its_limit(play: Play) -> None:
    """The worst votes: each with another option, as long as one may be and all quotes, which JSON doubles."""

    async def scene(desk: Desk) -> None:
        done = []
        for request in range(30):
            votes = [
                Vote(f"p-{request}".ljust(63, "x"), f"{place}".rjust(OPTION_ID_BYTES, '"'), bytes(16), desk.clock.now())
                for place in range(VOTES_PER_REQUEST)
            ]
            done.append(desk.batcher.add("votes", votes))
        await asyncio.gather(*done)
        assert sum(desk.sizes) == 30 * VOTES_PER_REQUEST
        assert len(desk.sizes) > 1
        assert max(len(message.data) for message in desk.publisher.messages) <= MESSAGE_BYTES

    play(scene)


def test_past_the_bound_of_waiting_votes_a_request_is_busy_and_room_comes_back(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        desk.publisher.seconds = 1.0
        done = [desk.batcher.add("votes", desk.votes(1_000)) for _ in range(WAITING_VOTES // 1_000)]
        with pytest.raises(Busy) as caught:
            desk.batcher.add("votes", desk.votes(1))
        assert (caught.value.code, 1 <= caught.value.retry_after <= 5) == ("intake-full", True)
        await asyncio.gather(*done)
        await desk.batcher.add("votes", desk.votes(1))

    play(scene)


def test_past_the_bound_of_waiting_bytes_a_request_is_busy_and_room_comes_back(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        desk.publisher.seconds = 1.0
        done, number = [], 0
        with pytest.raises(Busy):
            while True:
                votes = [
                    Vote("lunch", f"{number}-{place}".ljust(128, '"'), bytes(16), desk.clock.now())
                    for place in range(1_000)
                ]
                done.append(desk.batcher.add("votes", votes))
                number += 1
        await asyncio.gather(*done)
        assert sum(desk.sizes) < WAITING_VOTES
        assert sum(len(message.data) for message in desk.publisher.messages) <= WAITING_BYTES
        await desk.batcher.add("votes", votes)

    play(scene)


@pytest.mark.parametrize("error", [Unavailable("down"), Rejected("no topic")], ids=["outage", "rejected"])
def test_a_publish_that_fails_is_busy_for_all_with_waits_that_differ(play: Play, error: Unavailable) -> None:
    async def scene(desk: Desk) -> None:
        desk.publisher.error = error
        futures = [desk.batcher.add("votes", desk.votes(1)) for _ in range(50)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        waits = {outcome.retry_after for outcome in outcomes if isinstance(outcome, Busy)}
        assert len(outcomes) == 50
        assert waits == {1, 2, 3, 4, 5}

    play(scene)


def test_a_publish_that_hangs_is_busy_within_ten_seconds_and_frees_its_room(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        desk.publisher.seconds = 3_600
        started = time()
        futures = [desk.batcher.add("votes", desk.votes(1_000)) for _ in range(50)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(outcome, Busy) for outcome in outcomes)
        assert time() - started < 7
        desk.publisher.seconds = 0
        await desk.batcher.add("votes", desk.votes(1))

    play(scene)


@pytest.mark.parametrize(("seconds", "good"), [(59, True), (61, False)])
def test_a_vote_confirmed_long_after_its_stamp_is_not_promised(play: Play, seconds: int, good: bool) -> None:
    """As when the process was suspended: the loop's clock stood still, and its time-outs with it."""

    async def scene(desk: Desk) -> None:
        desk.publisher.seconds = 0.1
        done = desk.batcher.add("votes", desk.votes(1))
        await asyncio.sleep(0.05)
        desk.clock.step(seconds * SECOND)
        fresh = desk.batcher.add("votes", desk.votes(1))
        if good:
            await done
        else:
            with pytest.raises(Busy):
                await done
        await fresh

    play(scene)


def test_of_requests_that_share_a_message_only_the_old_one_is_not_promised(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        old = desk.batcher.add("votes", desk.votes(1))
        desk.clock.step(61 * SECOND)
        fresh = desk.batcher.add("votes", desk.votes(1))
        with pytest.raises(Busy):
            await old
        await fresh
        assert desk.sizes == [2]

    play(scene)


def test_closing_publishes_the_open_batch_at_once_and_takes_no_more(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        desk.publisher.seconds = 1.0
        early = desk.batcher.add("votes", desk.votes(2))
        await asyncio.sleep(2 * LINGER_SECONDS)
        late = desk.batcher.add("votes", desk.votes(1))
        started = time()
        await desk.batcher.close()
        assert early.done()
        assert late.done()
        assert time() - started == pytest.approx(1.0)
        assert desk.sizes == [2, 1]
        with pytest.raises(Busy):
            desk.batcher.add("votes", desk.votes(1))

    play(scene)


def test_closing_publishes_the_open_batch_of_every_topic_and_one_that_fails_keeps_no_other(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        topics = ("votes", "no such topic", "other", "third")
        done = {topic: desk.batcher.add(topic, desk.votes(1)) for topic in topics}
        await desk.batcher.close()
        assert all(future.done() for future in done.values())
        assert [topic for topic in topics if done[topic].exception()] == ["no such topic"]
        assert desk.sizes == [1, 1, 1]

    play(scene)


def test_a_publish_that_fails_when_nobody_waits_for_it_is_no_unseen_error(tally_clock: VirtualClock) -> None:
    """Of a list whose votes go by two topics one may be taken and the other be too much: then nobody waits."""

    async def main() -> None:
        desk = Desk(tally_clock)
        desk.publisher.error = Unavailable("down")
        desk.batcher.add("votes", desk.votes(1))
        await desk.batcher.close()

    assert unseen_errors(main) == []


def test_it_says_for_how_long_publishing_has_failed(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        desk.publisher.error = Unavailable("down")
        for _ in range(2):
            with pytest.raises(Busy):
                await desk.batcher.add("votes", desk.votes(1))
            await asyncio.sleep(20)
        assert desk.batcher.failing_seconds == pytest.approx(40, abs=0.1)
        desk.publisher.error = None
        await desk.batcher.add("votes", desk.votes(1))
        assert desk.batcher.failing_seconds == 0

    play(scene)


def test_one_topic_that_fails_is_told_though_others_do_not(play: Play) -> None:
    async def scene(desk: Desk) -> None:
        for _ in range(2):
            with pytest.raises(Busy):
                await desk.batcher.add("no such topic", desk.votes(1))
            await desk.batcher.add("votes", desk.votes(1))
            await asyncio.sleep(20)
        assert desk.batcher.failing_seconds == pytest.approx(40, abs=0.1)

    play(scene)
