"""What every Publisher and Puller does. Delivery is at least once and in any order: the tests collect and compare."""

import asyncio
from collections.abc import Sequence

import pytest

from tally.clock import SECOND, SystemClock
from tally.errors import Refused, Rejected
from tally.ports import Backend, Outgoing, Publisher, Puller, Received
from tests.conformance.conftest import COPY, SUBSCRIPTION, TOPIC


async def collect(puller: Puller, number: int, *, seconds: float = 20.0) -> list[Received]:
    """Pull until this many deliveries have come; they are left unsettled."""
    received: list[Received] = []
    async with asyncio.timeout(seconds):
        while len(received) < number:
            received += await puller.pull(1_000)
    return received


async def publish(publisher: Publisher, *data: bytes) -> Sequence[str]:
    return await publisher.publish(TOPIC, [Outgoing(each, {}) for each in data])


async def test_messages_come_whole_with_their_ids(publisher: Publisher, puller: Puller) -> None:
    sent = [Outgoing(b"one", {"v": "1", "unicode": "é"}), Outgoing(bytes(range(256)), {}), Outgoing(b"", {"v": "1"})]
    ids = await publisher.publish(TOPIC, sent)
    received = {message.message_id: message for message in await collect(puller, 3)}
    assert len(set(ids)) == 3
    assert [(received[name].data, dict(received[name].attributes)) for name in ids] == [
        (data, dict(attributes)) for data, attributes in sent
    ]
    assert len({message.ack_id for message in received.values()}) == 3


async def test_the_publish_time_is_the_services_clock(publisher: Publisher, puller: Puller) -> None:
    now = SystemClock().now()
    await publish(publisher, b"x")
    (message,) = await collect(puller, 1)
    assert abs(message.publish_time - now) < 10 * SECOND


async def test_a_thousand_messages_fit_in_a_publish_and_one_more_is_rejected(
    publisher: Publisher, puller: Puller
) -> None:
    with pytest.raises(Rejected, match="1001 messages"):
        await publish(publisher, *[b"x"] * 1_001)
    data = [str(number).encode() for number in range(1_000)]
    ids = await publish(publisher, *data)
    received = {message.message_id: message.data for message in await collect(puller, 1_000)}
    assert [received[name] for name in ids] == data


async def test_a_publish_over_nine_million_bytes_is_rejected(publisher: Publisher, puller: Puller) -> None:
    with pytest.raises(Rejected, match="9000001 bytes"):
        await publish(publisher, bytes(9_000_000), b"x")
    await publish(publisher, b"small")
    assert [message.data for message in await collect(puller, 1)] == [b"small"]


async def test_a_publish_of_nothing_is_rejected(publisher: Publisher) -> None:
    with pytest.raises(Rejected, match="0 messages"):
        await publish(publisher)


@pytest.mark.parametrize("number", [0, 1_001])
async def test_a_pull_of_none_or_of_more_than_a_thousand_is_rejected(puller: Puller, number: int) -> None:
    with pytest.raises(Rejected, match=f"{number} messages"):
        await puller.pull(number)


@pytest.mark.parametrize("number", [0, 1_001])
async def test_no_ack_ids_or_more_than_a_thousand_are_rejected(
    publisher: Publisher, puller: Puller, number: int
) -> None:
    """A service says of too many what it says of expired ones; the caller must be told, or they come again for ever."""
    await publish(publisher, b"x")
    (received,) = await collect(puller, 1)
    for call in (puller.acknowledge([received.ack_id] * number), puller.extend([received.ack_id] * number, 10)):
        with pytest.raises(Rejected, match=f"{number} ack ids"):
            await call


async def test_an_ack_deadline_is_at_most_ten_minutes(publisher: Publisher, puller: Puller) -> None:
    await publish(publisher, b"x")
    (received,) = await collect(puller, 1)
    for seconds in (-1, 601):
        with pytest.raises(Rejected, match=f"{seconds} s"):
            await puller.extend([received.ack_id], seconds)
    await puller.extend([received.ack_id], 600)


async def test_a_message_of_a_million_bytes_comes_whole(publisher: Publisher, puller: Puller) -> None:
    data = bytes(range(250)) * 4_000
    await publish(publisher, data)
    (message,) = await collect(puller, 1)
    assert message.data == data


async def test_a_pull_brings_no_more_than_it_may(publisher: Publisher, puller: Puller) -> None:
    await publish(publisher, *[b"x"] * 20)
    assert 0 < len(await puller.pull(7)) <= 7


async def test_an_idle_pull_answers_with_nothing(puller: Puller) -> None:
    async with asyncio.timeout(15):
        assert list(await puller.pull(10)) == []


async def test_a_pull_that_waits_gets_what_comes_meanwhile(publisher: Publisher, puller: Puller) -> None:
    waiting = asyncio.create_task(collect(puller, 1))
    await asyncio.sleep(0)
    await publish(publisher, b"now")
    assert [message.data for message in await waiting] == [b"now"]


async def test_several_pulls_at_a_time_share_the_messages(publisher: Publisher, puller: Puller) -> None:
    await publish(publisher, *(str(number).encode() for number in range(300)))
    seen: list[bytes] = []

    async def work() -> None:
        while len(seen) < 300:
            messages = await puller.pull(20)
            seen.extend(message.data for message in messages)
            if messages:
                await puller.acknowledge([message.ack_id for message in messages])

    async with asyncio.timeout(20):
        first, others = await asyncio.wait(
            [asyncio.create_task(work()) for _ in range(4)], return_when="FIRST_COMPLETED"
        )
    for other in others:  # they wait for more
        other.cancel()
    await asyncio.gather(*first)
    assert sorted(seen) == sorted(str(number).encode() for number in range(300))


async def test_what_is_acknowledged_does_not_come_again_and_the_rest_does(publisher: Publisher, puller: Puller) -> None:
    await publish(publisher, b"settled", b"held")
    first = {message.data: message for message in await collect(puller, 2)}
    await puller.acknowledge([first[b"settled"].ack_id])
    await puller.extend([message.ack_id for message in first.values()], 1)
    (again,) = await collect(puller, 1)
    assert (again.data, again.message_id) == (b"held", first[b"held"].message_id)
    assert again.ack_id != first[b"held"].ack_id


async def test_a_released_message_comes_again_at_once_by_a_new_ack_id(publisher: Publisher, puller: Puller) -> None:
    await publish(publisher, b"x")
    (first,) = await collect(puller, 1)
    await puller.extend([first.ack_id], 0)
    (again,) = await collect(puller, 1, seconds=8)
    assert again.message_id == first.message_id
    assert again.publish_time == first.publish_time
    assert again.ack_id != first.ack_id


async def test_a_message_that_is_given_back_time_and_again_still_comes(publisher: Publisher, puller: Puller) -> None:
    """After as many attempts as a dead-letter policy would allow, and more: an outage must not use a vote up."""
    await publish(publisher, b"x")
    for _ in range(8):
        (message,) = await collect(puller, 1)
        await puller.extend([message.ack_id], 0)
    (message,) = await collect(puller, 1)
    assert message.data == b"x"


async def test_an_extended_message_stays_away_past_its_former_deadline(publisher: Publisher, puller: Puller) -> None:
    await publish(publisher, b"long", b"short")
    first = {message.data: message for message in await collect(puller, 2)}
    await puller.extend([first[b"short"].ack_id], 1)
    await puller.extend([first[b"long"].ack_id], 1)
    await puller.extend([first[b"long"].ack_id], 60)
    assert [message.data for message in await collect(puller, 1)] == [b"short"]
    await publish(publisher, b"end")
    assert [message.data for message in await collect(puller, 1)] == [b"end"]


async def test_a_late_acknowledgement_or_extension_does_no_harm(publisher: Publisher, puller: Puller) -> None:
    """Whether it settles the message is the service's choice (one emulator: yes); it raises nothing."""
    await publish(publisher, b"x")
    (first,) = await collect(puller, 1)
    await puller.extend([first.ack_id], 0)
    (again,) = await collect(puller, 1)
    await puller.extend([first.ack_id], 30)
    await puller.acknowledge([first.ack_id])
    await puller.acknowledge([first.ack_id])
    await puller.acknowledge([again.ack_id])
    await publish(publisher, b"next")
    assert [message.data for message in await collect(puller, 1)] == [b"next"]


async def test_each_subscription_has_every_message(backend: Backend, publisher: Publisher) -> None:
    pullers = [backend.puller(name) for name in (SUBSCRIPTION, COPY)]
    await publish(publisher, b"a", b"b")
    for puller in pullers:
        received = await collect(puller, 2)
        assert {message.data for message in received} == {b"a", b"b"}
        await puller.acknowledge([message.ack_id for message in received])


async def test_messages_wait_for_a_subscription_whose_puller_is_away(backend: Backend, publisher: Publisher) -> None:
    """A worker's end takes nothing away, and making the subscription again finds the one that is there."""
    await publish(publisher, b"early")
    await backend.prepare()
    assert [message.data for message in await collect(backend.puller(SUBSCRIPTION), 1)] == [b"early"]


async def test_preparing_many_times_at_once_is_harmless(backend: Backend, publisher: Publisher, puller: Puller) -> None:
    await asyncio.gather(*(backend.prepare() for _ in range(5)))
    await publish(publisher, b"once")
    assert [message.data for message in await collect(puller, 1)] == [b"once"]


async def test_a_topic_or_a_subscription_that_does_not_exist_is_named_an_error(
    backend: Backend, publisher: Publisher
) -> None:
    with pytest.raises(Refused) as caught:
        await publisher.publish("missing", [Outgoing(b"x", {})])
    assert caught.value.status == "NOT_FOUND"
    with pytest.raises(Refused) as caught:
        await backend.puller("missing").pull(1)
    assert caught.value.status == "NOT_FOUND"
