import asyncio
from typing import Unpack

import pytest

from tally.errors import Rejected
from tally.ports import Outgoing
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.pubsub import Bounds, FakePubSub, FakeSubscription


def broker(**options: Unpack[Bounds]) -> tuple[FakePubSub, FakeSubscription]:
    pubsub = FakePubSub(clock=VirtualClock())
    pubsub.create_topic("t")
    return pubsub, pubsub.create_subscription("s", "t", **options)


def test_what_is_not_acknowledged_comes_again_with_a_new_ack_id(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pubsub, subscription = broker()
        (message_id,) = await pubsub.publish("t", [Outgoing(b"1", {"v": "1"})])
        (first,) = await subscription.pull(10)
        assert not await subscription.pull(10)
        await asyncio.sleep(5.1)
        (second,) = await subscription.pull(10)
        assert first.message_id == second.message_id == message_id
        assert first.ack_id != second.ack_id
        await subscription.acknowledge([first.ack_id])
        assert subscription.unsettled == 1
        await subscription.acknowledge([second.ack_id])
        assert subscription.unsettled == 0
        await asyncio.sleep(20)
        assert not await subscription.pull(10)

    tally_loop.run(main())


def test_extending_holds_a_message_and_zero_gives_it_back(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pubsub, subscription = broker(patience=0)
        await pubsub.publish("t", [Outgoing(b"1", {})])
        (message,) = await subscription.pull(1)
        for _ in range(5):
            await asyncio.sleep(9)
            await subscription.extend([message.ack_id], 10)
        assert not await subscription.pull(1)
        await subscription.extend([message.ack_id], 0)
        assert len(await subscription.pull(1)) == 1

    tally_loop.run(main())


def test_a_pull_waits_for_the_first_message(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pubsub, subscription = broker()
        pull = asyncio.create_task(subscription.pull(10))
        await asyncio.sleep(3)
        await pubsub.publish("t", [Outgoing(b"1", {}), Outgoing(b"2", {})])
        assert [each.data for each in await pull] == [b"1", b"2"]
        assert asyncio.get_running_loop().time() == 3

    tally_loop.run(main())


async def test_an_answer_is_bounded_in_messages_and_bytes() -> None:
    pubsub, subscription = broker(answer_messages=3, answer_bytes=10)
    await pubsub.publish("t", [Outgoing(b"1234", {})] * 5)
    assert len(await subscription.pull(1_000)) == 2
    assert len(await subscription.pull(1)) == 1


@pytest.mark.parametrize(
    "message", [Outgoing(b"x", {str(n): "" for n in range(101)}), Outgoing(b"", {}), Outgoing(b"x" * 10_000_001, {})]
)
async def test_the_services_limits_hold(message: Outgoing) -> None:
    pubsub, _ = broker()
    with pytest.raises(Rejected):
        await pubsub.publish("t", [message])


async def test_the_backend_has_the_topics_of_the_settings(tally_backend: FakeBackend) -> None:
    await tally_backend.prepare()
    await tally_backend.publisher.publish("votes", [Outgoing(b"1", {})])
    assert len(await tally_backend.puller("votes").pull(1)) == 1
