"""The inbox at its bounds, and one past them: what it holds, asks for and sends."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from tally import limits
from tally.errors import Unavailable
from tally.ports import Outgoing, Received
from tally.testing.loop import VirtualLoop
from tally.votes.decoder import Decoded
from tally.votes.inbox import Inbox


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


@pytest.mark.parametrize("letters", [(), (Outgoing(b"refused", {}),)], ids=["votes", "votes and letters"])
def test_the_room_in_bytes_comes_back_with_the_acknowledgement(
    tally_loop: VirtualLoop, letters: tuple[Outgoing, ...]
) -> None:
    async def main() -> None:
        inbox = Inbox(Service(), Service(), "dead")
        keeping = asyncio.create_task(inbox.run())
        count = 20 if letters else 80  # hundredths of the bytes; with letters a quarter may wait
        for _ in range(10):
            inbox.settle(np.array(take(inbox, received(count, limits.HELD_BYTES // 100), letters=letters)))
            await asyncio.sleep(1)
        assert (inbox.settled_messages, inbox.busy) == (10 * count, False)
        assert await has_room(inbox)
        keeping.cancel()

    tally_loop.run(main())


def test_what_would_wait_for_its_letters_past_their_share_is_let_go_and_that_is_known(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        inbox = Inbox(Service(), Service(), "dead")
        share = limits.HELD_MESSAGES // 4
        take(inbox, received(share), votes=0, letters=[Outgoing(b"refused", {})])
        assert (inbox.settled_messages, inbox.let_go_at) == (share, float("-inf"))
        await asyncio.sleep(1)
        take(inbox, received(1), votes=0, letters=[Outgoing(b"refused", {})])
        assert (inbox.settled_messages, inbox.let_go_at) == (share, asyncio.get_running_loop().time())

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
