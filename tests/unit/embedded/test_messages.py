import asyncio
from typing import Any

import pytest

from tally.clock import SECOND
from tally.embedded.backend import SqliteBackend
from tally.embedded.messages import (
    PATIENCE_SECONDS,
    RETENTION_SECONDS,
    Housekeeper,
    create_subscription,
    create_topic,
)
from tally.embedded.writer import Transaction
from tally.errors import Refused, Rejected
from tally.limits import ACK_DEADLINE_SECONDS
from tally.ports import Outgoing, Received
from tests.unit.embedded.conftest import HandClock


async def _publish(backend: SqliteBackend, *data: bytes) -> list[str]:
    return list(await backend.publisher.publish("votes", [Outgoing(each, {"v": "1"}) for each in data]))


async def _pull(backend: SqliteBackend, limit: int = 1_000) -> list[Received]:
    return list(await backend.puller("votes").pull(limit))


async def test_messages_come_once_in_order_with_their_attributes_and_publish_time(
    backend: SqliteBackend, clock: HandClock
) -> None:
    ids = await _publish(backend, b"a", b"\x00\xff", b"")
    got = await _pull(backend)
    assert [(m.message_id, m.data, m.attributes, m.publish_time) for m in got] == [
        (name, data, {"v": "1"}, clock.at) for name, data in zip(ids, (b"a", b"\x00\xff", b""), strict=True)
    ]
    assert await _pull(backend) == []


async def test_a_delivery_comes_again_at_its_deadline_under_a_new_ack_id(
    backend: SqliteBackend, clock: HandClock
) -> None:
    await _publish(backend, b"a")
    (first,) = await _pull(backend)
    clock.at += ACK_DEADLINE_SECONDS * SECOND - 1
    assert await _pull(backend) == []
    clock.at += 1
    (second,) = await _pull(backend)
    assert second.message_id == first.message_id and second.ack_id != first.ack_id
    await backend.puller("votes").acknowledge([first.ack_id])
    clock.at += ACK_DEADLINE_SECONDS * SECOND
    (third,) = await _pull(backend)
    await backend.puller("votes").acknowledge([third.ack_id])
    clock.at += ACK_DEADLINE_SECONDS * SECOND
    assert await _pull(backend) == []


async def test_extending_moves_the_deadline_and_zero_gives_back_at_once(
    backend: SqliteBackend, clock: HandClock
) -> None:
    await _publish(backend, b"a")
    (held,) = await _pull(backend)
    puller = backend.puller("votes")
    await puller.extend([held.ack_id], 60)
    clock.at += 59 * SECOND
    assert await _pull(backend) == []
    await puller.extend([held.ack_id], 0)
    (again,) = await _pull(backend)
    assert again.ack_id != held.ack_id
    await puller.extend([held.ack_id], 600)  # of a delivery that is over: no effect
    clock.at += ACK_DEADLINE_SECONDS * SECOND
    assert len(await _pull(backend)) == 1


async def test_each_subscription_has_its_own_copy_under_one_message_id(backend: SqliteBackend) -> None:
    def create(transaction: Transaction) -> None:
        create_topic(transaction, "pairs")
        create_subscription(transaction, "one", "pairs")
        create_subscription(transaction, "two", "pairs")

    await backend.write(create)
    (name,) = await backend.publisher.publish("pairs", [Outgoing(b"a", {})])
    (one,) = await backend.puller("one").pull(10)
    await backend.puller("two").acknowledge([one.ack_id])
    await backend.puller("one").acknowledge([one.ack_id])
    (two,) = await backend.puller("two").pull(10)
    assert one.message_id == two.message_id == name


async def test_acknowledged_messages_leave_the_file(backend: SqliteBackend) -> None:
    for count in (1_000, 500):
        await _publish(backend, *[b"x"] * count)
    while got := await _pull(backend):
        await backend.puller("votes").acknowledge([message.ack_id for message in got])
    assert await _rows(backend) == (0, 0)


async def _rows(backend: SqliteBackend) -> tuple[int, int]:
    def count(transaction: Transaction) -> tuple[int, int]:
        messages, deliveries = (
            transaction.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("message", "delivery")
        )
        return messages, deliveries

    return await backend.write(count)


async def test_a_pull_stays_within_ten_megabytes_but_brings_at_least_one(backend: SqliteBackend) -> None:
    for _ in range(3):
        await _publish(backend, b"x" * 4_000_000)
    assert len(await _pull(backend)) == 2
    assert len(await _pull(backend)) == 1


async def test_a_waiting_pull_wakes_when_something_is_published(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.embedded.messages.PULL_SECONDS", 30.0)
    pull = asyncio.create_task(_pull(backend))
    await asyncio.sleep(0)
    await _publish(backend, b"a")
    assert len(await asyncio.wait_for(pull, 5)) == 1


class Steady:
    """The steady clock of a process, moved by hand; `house` is what it keeps the file by."""

    def __init__(self, clock: HandClock) -> None:
        self.seconds = 0.0
        self.house = Housekeeper(clock, lambda: self.seconds)


async def test_messages_older_than_the_retention_are_dropped(backend: SqliteBackend, clock: HandClock) -> None:
    steady = Steady(clock)
    await _publish(backend, b"old")
    steady.seconds += RETENTION_SECONDS
    clock.at += RETENTION_SECONDS * SECOND
    await _publish(backend, b"new")
    await backend.write(steady.house.keep)
    assert len(await _pull(backend)) == 2
    steady.seconds += 1
    clock.at += 1
    await backend.write(steady.house.keep)
    assert await _rows(backend) == (1, 1)


async def test_a_wrong_clock_that_is_set_right_makes_no_message_too_old(
    backend: SqliteBackend, clock: HandClock
) -> None:
    steady = Steady(clock)
    await _publish(backend, b"a")
    clock.at += 20_000 * 86_400 * SECOND
    for _ in range(100):
        steady.seconds += PATIENCE_SECONDS
        clock.at += PATIENCE_SECONDS * SECOND
        await backend.write(steady.house.keep)
    assert len(await _pull(backend)) == 1


async def test_a_process_that_begins_after_the_clock_was_set_right_drops_nothing_for_a_while(
    backend: SqliteBackend, clock: HandClock
) -> None:
    await _publish(backend, b"a")
    clock.at += 20_000 * 86_400 * SECOND
    steady = Steady(clock)
    steady.seconds += PATIENCE_SECONDS - 1
    await backend.write(steady.house.keep)
    assert await _rows(backend) == (1, 1)
    steady.seconds += 1
    await backend.write(steady.house.keep)
    assert await _rows(backend) == (0, 0)


async def test_a_clock_set_back_delays_a_lease_by_no_more_than_the_longest_deadline(
    backend: SqliteBackend, clock: HandClock
) -> None:
    await _publish(backend, b"a")
    await _pull(backend)
    clock.at -= 24 * 3_600 * SECOND
    await backend.write(Steady(clock).house.keep)
    assert len(await _pull(backend)) == 1


async def test_a_clock_set_back_by_minutes_keeps_no_new_message_from_a_worker_that_starts(
    backend: SqliteBackend, clock: HandClock
) -> None:
    """One that ends when nothing is left would say so, although votes wait; a lease goes on as it was."""
    await _publish(backend, b"leased")
    await _pull(backend)
    await _publish(backend, b"new")
    clock.at -= 300 * SECOND
    await backend.write(Steady(clock).house.keep)
    assert [message.data for message in await _pull(backend)] == [b"new"]


@pytest.mark.parametrize(("data", "attributes"), [(b"", {}), ("text", {}), (b"a", {"n": 1}), (b"a", {1: "n"})])
async def test_a_message_that_the_service_refuses_is_rejected(
    backend: SqliteBackend, data: Any, attributes: Any
) -> None:
    with pytest.raises(Rejected):
        await backend.publisher.publish("votes", [Outgoing(b"good", {}), Outgoing(data, attributes)])
    assert await _pull(backend) == []


async def test_an_unknown_topic_or_subscription_is_refused_by_name(backend: SqliteBackend) -> None:
    with pytest.raises(Refused, match="'none'") as raised:
        await backend.publisher.publish("none", [Outgoing(b"a", {})])
    assert raised.value.status == "NOT_FOUND"
    with pytest.raises(Refused, match="'none'"):
        await backend.puller("none").pull(1)


@pytest.mark.parametrize("ack_id", ["", "x", "1", "1-x", "1-2-3"])
async def test_an_ack_id_that_is_not_ours_is_rejected(backend: SqliteBackend, ack_id: str) -> None:
    with pytest.raises(Rejected, match="ack id"):
        await backend.puller("votes").acknowledge([ack_id])
