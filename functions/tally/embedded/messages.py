"""Topics, subscriptions and leases on the file.

Each subscription has its own copy of a message. A delivery is due at `available_at`; a lease moves that to its deadline
and raises `attempt`, so an ack id, which names both, is dead once the message was delivered again.
"""

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from tally.clock import SECOND, Clock
from tally.embedded.reader import Reader
from tally.embedded.signal import POLL_SECONDS, Signal
from tally.embedded.writer import Transaction, Writer
from tally.errors import Refused, Rejected
from tally.limits import ACK_DEADLINE_SECONDS, ACK_DEADLINE_SECONDS_MAX, PULL_BYTES
from tally.logs import event
from tally.message_limits import check_ack_deadline, check_ack_ids, check_publish, check_pull
from tally.ports import Outgoing, Received

RETENTION_SECONDS = 7 * 24 * 3_600
PATIENCE_SECONDS = 3_600
PULL_SECONDS = 2.0
EXPIRED_AT_ONCE = 10_000

_DUE = """
SELECT json_group_array(id) FROM (
    SELECT d.id, row_number() OVER due AS place, sum(length(m.data) + length(m.attributes)) OVER due AS size
    FROM (
        SELECT id, available_at FROM delivery WHERE subscription = ? AND available_at <= ?
        ORDER BY available_at, id LIMIT ?
    ) d JOIN message m ON m.id = d.id WINDOW due AS (ORDER BY d.available_at, d.id ROWS UNBOUNDED PRECEDING)
) WHERE size <= ? OR place = 1
"""
_HELD = (
    "subscription = ? AND (id, attempt) IN "
    "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"
)

_ACK_ID = re.compile(r"(\d{1,18})-(\d{1,9})", re.ASCII)

_encode = msgspec.json.Encoder().encode
_decode_deliveries = msgspec.json.Decoder(list[tuple[int, int, int, int, str, str]]).decode
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class SqlitePublisher:
    def __init__(self, writer: Writer, signal: Signal) -> None:
        self._writer = writer
        self._signal = signal

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        rows = [_content(message) for message in messages]
        check_publish(messages)
        names = await self._writer.run(partial(_publish, topic, rows))
        self._signal.notify()
        return names


class SqlitePuller:
    def __init__(self, subscription: str, writer: Writer, reader: Reader, signal: Signal, clock: Clock) -> None:
        self._subscription = subscription
        self._writer = writer
        self._reader = reader
        self._signal = signal
        self._clock = clock

    async def pull(self, max_messages: int) -> Sequence[Received]:
        check_pull(max_messages)
        loop = asyncio.get_running_loop()
        end = loop.time() + PULL_SECONDS
        while True:
            seen = self._signal.count
            due = await self._reader.run(partial(_next_due, self._subscription))
            delay = PULL_SECONDS if due is None else max(0, due - self._clock.now()) / SECOND
            if delay == 0:
                text = await self._writer.run(partial(_lease, self._subscription, max_messages))
                if text is not None:
                    return _received(text)
            if loop.time() >= end:
                return ()
            await self._signal.wait(seen, min(delay or POLL_SECONDS, end - loop.time()))

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        await self._writer.run(partial(_acknowledge, self._subscription, _pairs(ack_ids)))

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        check_ack_deadline(seconds)
        await self._writer.run(partial(_extend, self._subscription, _pairs(ack_ids), seconds))
        if seconds == 0:
            self._signal.notify()


def create_topic(transaction: Transaction, topic: str) -> None:
    transaction.execute("INSERT INTO topic (name) VALUES (?) ON CONFLICT DO NOTHING", (topic,))


def create_subscription(transaction: Transaction, subscription: str, topic: str) -> None:
    """Make a subscription of a topic that exists; it gets what is published from now on."""
    transaction.execute(
        "INSERT INTO subscription (name, topic) SELECT ?, id FROM topic WHERE name = ? ON CONFLICT DO NOTHING",
        (subscription, topic),
    )


class Housekeeper:
    """Drops messages past the retention, and frees what a clock set back has put ahead: new messages, and long leases.

    A wrong clock that is set right makes votes that wait look weeks old. So from when this process began time counts by
    a clock that nobody sets, and votes that looked old already have PATIENCE_SECONDS to be counted.
    """

    def __init__(self, clock: Clock, time: Callable[[], float]) -> None:
        """`time`: steady seconds, as the loop's."""
        self._time = time
        self._began, self._began_at = time(), clock.now()

    def keep(self, transaction: Transaction) -> None:
        elapsed = self._time() - self._began
        if elapsed >= PATIENCE_SECONDS:
            now = min(transaction.now, self._began_at + round(elapsed * SECOND))
            _drop(transaction, now - RETENTION_SECONDS * SECOND)
        transaction.execute(
            "UPDATE delivery SET available_at = ? WHERE subscription IN (SELECT id FROM subscription) "
            "AND available_at > ? AND (attempt = 0 OR available_at > ?)",
            (transaction.now, transaction.now, transaction.now + ACK_DEADLINE_SECONDS_MAX * SECOND),
        )


def _drop(transaction: Transaction, oldest: int) -> None:
    old = "(SELECT id FROM (SELECT id, publish_time FROM message ORDER BY id LIMIT ?) WHERE publish_time < ?)"
    dropped = [
        transaction.execute(f"DELETE FROM {table} WHERE id IN {old}", (EXPIRED_AT_ONCE, oldest)).rowcount
        for table in ("delivery", "message")
    ]
    if any(dropped):
        event("messages-expired", level=logging.WARNING, messages=dropped[0])


def _content(message: Outgoing) -> tuple[str, bytes]:
    data, attributes = message
    if not isinstance(data, bytes):
        raise Rejected(f"a message's data is bytes, not {type(data).__name__}", status="INVALID_ARGUMENT")
    if not all(isinstance(text, str) for pair in attributes.items() for text in pair):
        raise Rejected("a message's attributes are text", status="INVALID_ARGUMENT")
    if not data and not attributes:
        raise Rejected("a message is empty: it has neither data nor attributes", status="INVALID_ARGUMENT")
    return _encode(dict(attributes)).decode(), data


def _publish(topic: str, rows: Sequence[tuple[str, bytes]], transaction: Transaction) -> list[str]:
    subscriptions = transaction.subscriptions.get(topic)
    if subscriptions is None:
        subscriptions = transaction.subscriptions[topic] = _subscriptions(transaction, topic)
    names = []
    for attributes, data in rows:
        name = transaction.next()
        copy = name
        for subscription in subscriptions:
            transaction.insert_later("message", (copy, name, transaction.now, attributes, data))
            transaction.insert_later("delivery", (copy, subscription, transaction.now, 0))
            copy = transaction.next()
        names.append(str(name))
    return names


def _subscriptions(transaction: Transaction, topic: str) -> list[int]:
    found = transaction.execute("SELECT id FROM topic WHERE name = ?", (topic,)).fetchone()
    if found is None:
        raise Refused(f"topic {topic!r} does not exist", status="NOT_FOUND")
    return [row[0] for row in transaction.execute("SELECT id FROM subscription WHERE topic = ?", found)]


def _subscription(execute: sqlite3.Connection | Transaction, name: str) -> int:
    found = execute.execute("SELECT id FROM subscription WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise Refused(f"subscription {name!r} does not exist", status="NOT_FOUND")
    number: int = found[0]
    return number


def _next_due(subscription: str, connection: sqlite3.Connection) -> int | None:
    row = connection.execute(
        "SELECT min(available_at) FROM delivery WHERE subscription = ?", (_subscription(connection, subscription),)
    ).fetchone()
    due: int | None = row[0]
    return due


def _lease(subscription: str, limit: int, transaction: Transaction) -> str | None:
    """Lease what is due, the longest due first, up to `limit` messages and PULL_BYTES; return them as one JSON text."""
    number = _subscription(transaction, subscription)
    ids = transaction.execute(_DUE, (number, transaction.now, limit, int(PULL_BYTES))).fetchone()[0]
    if ids == "[]":
        return None
    transaction.execute(
        "UPDATE delivery SET available_at = ?, attempt = attempt + 1 WHERE id IN (SELECT value FROM json_each(?))",
        (transaction.now + ACK_DEADLINE_SECONDS * SECOND, ids),
    )
    text: str = transaction.execute(
        "SELECT json_group_array(json_array(d.id, d.attempt, m.name, m.publish_time, m.attributes, hex(m.data))) "
        "FROM json_each(?) j JOIN delivery d ON d.id = j.value JOIN message m ON m.id = d.id",
        (ids,),
    ).fetchone()[0]
    return text


def _received(text: str) -> list[Received]:
    return [
        Received(f"{key}-{attempt}", str(name), published, bytes.fromhex(data), _decode_attributes(attributes))
        for key, attempt, name, published, attributes, data in _decode_deliveries(text)
    ]


def _pairs(ack_ids: Sequence[str]) -> str:
    """Return ack ids as the JSON list of their (delivery, attempt)."""
    check_ack_ids(ack_ids)
    pairs = []
    for ack_id in ack_ids:
        match = _ACK_ID.fullmatch(ack_id)
        if match is None:
            raise Rejected(f"{ack_id!r} is not an ack id of this subscription", status="INVALID_ARGUMENT")
        pairs.append([int(part) for part in match.groups()])
    return _encode(pairs).decode()


def _acknowledge(subscription: str, pairs: str, transaction: Transaction) -> None:
    transaction.execute(f"DELETE FROM delivery WHERE {_HELD}", (_subscription(transaction, subscription), pairs))
    transaction.execute(
        "DELETE FROM message WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.id = message.id)",
        (pairs,),
    )


def _extend(subscription: str, pairs: str, seconds: int, transaction: Transaction) -> None:
    transaction.execute(
        f"UPDATE delivery SET available_at = ? WHERE {_HELD}",
        (transaction.now + seconds * SECOND, _subscription(transaction, subscription), pairs),
    )
    if seconds == 0:
        transaction.next()  # what the pulls of other processes watch
