"""What becomes of messages whose acks, leases or dead letters fail."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from tally import limits
from tally.errors import BackendError, Rejected, Unavailable
from tally.ports import Outgoing, Received
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.votes import batch, decoder
from tally.votes.batch import Vote
from tally.votes.decoder import Decoded
from tally.votes.inbox import Inbox
from tests.unit.votes.pipeline import letters

DOWN = Unavailable("down", status="UNAVAILABLE")


class Office:
    """An inbox over the fakes, which holds `messages` messages that cannot be decoded: each is a dead letter."""

    def __init__(self) -> None:
        self.backend = FakeBackend(clock=VirtualClock())
        self.published: list[Sequence[Outgoing]] = []
        self.errors: list[BackendError | None] = []

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        self.published.append(messages)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return await self.backend.publisher.publish(topic, messages)

    async def open(self, *contents: bytes) -> Inbox:
        await self.backend.prepare()
        inbox = Inbox(self.backend.puller("votes"), self, "votes-dead")
        await self.backend.publisher.publish("votes", [Outgoing(content, {}) for content in contents])
        messages = await self.backend.puller("votes").pull(100)
        inbox.receive(messages)
        inbox.take(messages, [message.publish_time for message in messages], decoder.decode(messages))
        return inbox


def test_dead_letters_are_published_again_until_they_are_and_only_then_acknowledged(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        office = Office()
        office.errors = [DOWN, DOWN, DOWN]
        inbox = await office.open(b"junk", b"more junk")
        running = asyncio.create_task(inbox.run())
        await asyncio.sleep(1.2)
        assert (len(office.published), inbox.busy) == (3, True)
        await asyncio.sleep(60)
        assert (len(office.published), inbox.busy, inbox.dead_letters) == (4, False, 2)
        running.cancel()
        assert len(await letters(office.backend.puller("votes-dead"))) == 2
        assert await office.backend.puller("votes").pull(10) == []

    tally_loop.run(main())


def test_a_letter_that_can_never_be_published_is_dropped_and_told_and_holds_up_no_other(
    tally_loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        office = Office()
        too_large = Rejected("too large", status="INVALID_ARGUMENT")
        office.errors = [too_large, too_large]  # together, then the first of them alone
        inbox = await office.open(b"junk", b"more junk", b"and more")
        await inbox.flush()
        assert [len(batch) for batch in office.published] == [3, 1, 1, 1]
        assert [letter.data for letter in await letters(office.backend.puller("votes-dead"))] == [
            b"more junk",
            b"and more",
        ]
        assert "dead-letter-rejected" in caplog.messages

    tally_loop.run(main())


def test_leases_that_cannot_be_given_back_end_by_themselves(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        office = Office()
        inbox = await office.open(b"junk")
        puller = office.backend.puller("votes")

        async def failing(ack_ids: object, seconds: int) -> None:
            raise DOWN

        puller.extend = failing  # type: ignore[method-assign]  # the outage
        await inbox.release_all()
        assert not inbox.held
        await asyncio.sleep(20)
        assert len(await puller.pull(10)) == 1

    tally_loop.run(main())


def test_a_request_for_more_time_that_hangs_lets_no_lease_lapse(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        office = Office()
        inbox = await office.open(batch.encode([Vote("p", "red", bytes(16), 1)]))
        puller = office.backend.puller("votes")
        extend, sent = puller.extend, 0

        async def hanging_at_first(ack_ids: Sequence[str], seconds: int) -> None:
            nonlocal sent
            sent += 1
            if sent == 1:
                await asyncio.Event().wait()
            await extend(ack_ids, seconds)

        puller.extend = hanging_at_first  # type: ignore[method-assign]  # the network
        running = asyncio.create_task(inbox.run())
        await asyncio.sleep(3 * limits.ACK_DEADLINE_SECONDS)
        assert await puller.pull(10) == []
        running.cancel()

    tally_loop.run(main())


def test_a_request_for_more_time_that_is_back_late_takes_none_away(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        office = Office()
        inbox = await office.open(batch.encode([Vote("p", "red", bytes(16), 1)]))
        (held,) = inbox.held.values()
        delays = iter([4, 0])

        async def slow_at_first(ack_ids: object, seconds: int) -> None:
            await asyncio.sleep(next(delays))

        office.backend.puller("votes").extend = slow_at_first  # type: ignore[method-assign]  # the network
        running = asyncio.create_task(inbox.run())
        await asyncio.sleep(8)
        extended = held.expires
        await asyncio.sleep(2.5)
        assert held.expires == extended > asyncio.get_running_loop().time() + 5
        running.cancel()

    tally_loop.run(main())


def test_votes_of_a_message_that_was_let_go_settle_nothing(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        inbox = await Office().open(b"junk")
        inbox.settle(np.array([0, 7, 7]))
        inbox.refuse(7, 2, Outgoing(b"late", {}))
        assert (inbox.settled_messages, 7 in inbox.held) == (1, False)

    tally_loop.run(main())


def test_a_flush_beside_a_publish_that_is_out_loses_no_letter(
    tally_loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowOffice(Office):
        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
            await asyncio.sleep(1)
            return await super().publish(topic, messages)

    async def main() -> None:
        monkeypatch.setattr(limits, "PUBLISH_MESSAGES", 1)
        office = SlowOffice()
        await office.backend.prepare()
        inbox = Inbox(office.backend.puller("votes"), office, "votes-dead")
        both = [Outgoing(b"one", {}), Outgoing(b"another", {})]
        message = Received("ack", "id", 1, b"", {})
        inbox.receive([message])
        inbox.take([message], [1], Decoded((), {inbox.next_number: 0}, {inbox.next_number: both}, []))
        running = asyncio.create_task(inbox.run())
        await asyncio.sleep(0.5)
        await inbox.flush()
        running.cancel()
        assert office.published == [both[:1], both[1:]]
        assert (inbox.dead_letters, inbox.busy) == (2, False)

    tally_loop.run(main())
