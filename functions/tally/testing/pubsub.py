"""Pub/Sub in memory: topics, subscriptions, ack deadlines, redelivery by new ack ids. Never fails by itself.

`manners` are the liberties that the service may take and a test wants to see taken: faults.py has a seeded set.
"""

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Protocol, TypedDict, Unpack

from tally.clock import Clock
from tally.errors import Refused, Rejected
from tally.limits import ACK_DEADLINE_SECONDS, PULL_BYTES, PULL_MESSAGES
from tally.message_limits import check_ack_deadline, check_ack_ids, check_publish, check_pull
from tally.ports import Outgoing, Received
from tally.testing.process import no_process

_ATTRIBUTES, _ATTRIBUTE_BYTES = 100, 1_024


class Manners(Protocol):
    """What the service does with each message and delivery. Delays in seconds."""

    def visible_after(self) -> float:
        """Return how long a published message stays out of sight of a subscription."""
        ...

    def copies(self) -> int:
        """Return how often a message is delivered at once, each time with an ack id of its own."""
        ...

    def place(self, waiting: int) -> int:
        """Return which of the messages that wait, oldest first, is delivered next."""
        ...

    def keeps_acknowledged(self, *, late: bool) -> bool:
        """Say whether a message comes again although it was acknowledged, in time or late."""
        ...


class Good:
    """The service at its best: at once, in order, once, but late acknowledgements do nothing."""

    def visible_after(self) -> float:
        return 0.0

    def copies(self) -> int:
        return 1

    def place(self, waiting: int) -> int:
        return 0

    def keeps_acknowledged(self, *, late: bool) -> bool:
        return late


class _Message:
    __slots__ = ("attributes", "data", "message_id", "publish_time", "settled")

    def __init__(self, message_id: str, publish_time: int, data: bytes, attributes: Mapping[str, str]) -> None:
        self.message_id = message_id
        self.publish_time = publish_time
        self.data = data
        self.attributes = attributes
        self.settled = False


class Bounds(TypedDict, total=False):
    """What a subscription may be told of leases, waits and answers: see FakeSubscription."""

    deadline: float
    patience: float
    answer_messages: int
    answer_bytes: int


class FakeSubscription:
    """A Puller. `patience`: how long a pull waits for a first message; `deadline`: seconds of a lease.

    `unsettled` counts the messages that are not acknowledged yet; `on_settled` is called with the id of each that is.
    `answer_messages` and `answer_bytes` bound one answer, as the service (or an emulator: 100 messages) does.
    """

    def __init__(
        self,
        *,
        manners: Manners,
        deadline: float = ACK_DEADLINE_SECONDS,
        patience: float = 5.0,
        answer_messages: int = PULL_MESSAGES,
        answer_bytes: int = PULL_BYTES,
    ) -> None:
        self.manners = manners
        self._deadline = deadline
        self._patience = patience
        self._answer_messages = answer_messages
        self._answer_bytes = answer_bytes
        self._ack_ids = count(1)
        self._waiting: deque[_Message] = deque()
        self._leases: dict[str, tuple[_Message, float]] = {}
        self._expired: dict[str, _Message] = {}
        self._expiries: list[tuple[float, str]] = []
        self._armed = math.inf
        self._pullers: deque[asyncio.Future[None]] = deque()
        self.unsettled = 0
        self.on_settled: Callable[[str], None] | None = None

    async def pull(self, max_messages: int) -> Sequence[Received]:
        check_pull(max_messages)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while not self._ready(loop.time()):
            if loop.time() >= until:
                return []
            await self._wait(until)
        return self._take(min(max_messages, self._answer_messages), loop.time())

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        check_ack_ids(ack_ids)
        self._expire(asyncio.get_running_loop().time())
        for ack_id in ack_ids:
            message = self._leases[ack_id][0] if ack_id in self._leases else self._expired.get(ack_id)
            if message is None or self.manners.keeps_acknowledged(late=ack_id not in self._leases):
                continue
            if ack_id in self._leases:
                del self._leases[ack_id]
            if not message.settled:
                message.settled = True
                self.unsettled -= 1
                if self.on_settled:
                    self.on_settled(message.message_id)

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        check_ack_ids(ack_ids)
        check_ack_deadline(seconds)
        now = asyncio.get_running_loop().time()
        self._expire(now)
        for ack_id in ack_ids:
            if ack_id in self._leases:
                self._lease(ack_id, self._leases[ack_id][0], now + seconds)
        self._expire(now)

    def accept(self, message: _Message) -> None:
        """Take a message from the topic; it is visible after the delay that the service takes."""
        self.unsettled += 1
        delay = self.manners.visible_after()
        copies = self.manners.copies()
        for _ in range(copies):
            if delay:
                asyncio.get_running_loop().call_later(delay, self._show, message, context=no_process())
            else:
                self._show(message)

    def _show(self, message: _Message) -> None:
        self._waiting.append(message)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._pullers:
            puller = self._pullers.popleft()
            if not puller.done():
                puller.set_result(None)
                return

    def _ready(self, now: float) -> bool:
        self._expire(now)
        while self._waiting and self._waiting[0].settled:
            self._waiting.popleft()
        return bool(self._waiting)

    async def _wait(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        puller: asyncio.Future[None] = loop.create_future()
        self._pullers.append(puller)
        timer = loop.call_at(until, _wake, puller)
        try:
            await puller
        except asyncio.CancelledError:
            if self._waiting:
                self._wake_one()
            raise
        finally:
            timer.cancel()

    def _take(self, most: int, now: float) -> Sequence[Received]:
        answer: list[Received] = []
        size = 0
        while self._waiting and len(answer) < most:
            place = self.manners.place(len(self._waiting))
            message = self._waiting[place]
            size += len(message.data)
            if answer and size > self._answer_bytes:
                break
            del self._waiting[place]
            if message.settled:
                continue
            ack_id = f"{message.message_id}-{next(self._ack_ids)}"
            self._lease(ack_id, message, now + self._deadline)
            answer.append(Received(ack_id, message.message_id, message.publish_time, message.data, message.attributes))
        return answer

    def _lease(self, ack_id: str, message: _Message, until: float) -> None:
        self._leases[ack_id] = (message, until)
        heapq.heappush(self._expiries, (until, ack_id))
        self._arm()

    def _arm(self) -> None:
        """Have the first lease that ends looked after, whoever waits for its message then."""
        if self._expiries and self._expiries[0][0] < self._armed:
            self._armed = self._expiries[0][0]
            asyncio.get_running_loop().call_at(self._armed, self._due, self._armed, context=no_process())

    def _due(self, armed: float) -> None:
        if armed == self._armed:
            self._armed = math.inf
            self._expire(armed)
            self._arm()

    def _expire(self, now: float) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            until, ack_id = heapq.heappop(self._expiries)
            message, current = self._leases.get(ack_id, (None, 0.0))
            if message is not None and current == until:
                del self._leases[ack_id]
                self._expired[ack_id] = message
                if not message.settled:
                    self._show(message)


class FakePubSub:
    """A Publisher, and the Pullers of its subscriptions. `clock` stamps the publish times."""

    def __init__(self, *, clock: Clock, manners: Manners | None = None) -> None:
        self._clock = clock
        self._manners = manners or Good()
        self._topics: dict[str, list[FakeSubscription]] = {}
        self._subscriptions: dict[str, FakeSubscription] = {}
        self._message_ids = count(1)

    def take_manners(self, manners: Manners) -> None:
        """Behave by these manners from now on, in all subscriptions."""
        self._manners = manners
        for subscription in self._subscriptions.values():
            subscription.manners = manners

    def create_topic(self, topic: str) -> None:
        self._topics.setdefault(topic, [])

    def create_subscription(self, name: str, topic: str, **options: Unpack[Bounds]) -> FakeSubscription:
        """Create a subscription (options: FakeSubscription's); if it exists, return it as it is."""
        if name not in self._subscriptions:
            subscription = FakeSubscription(manners=self._manners, **options)
            self._subscriptions[name] = subscription
            self._topics[topic].append(subscription)
        return self._subscriptions[name]

    def puller(self, subscription: str) -> FakeSubscription:
        if subscription not in self._subscriptions:
            raise Refused(f"no subscription {subscription!r}", status="NOT_FOUND")
        return self._subscriptions[subscription]

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        if topic not in self._topics:
            raise Refused(f"no topic {topic!r}", status="NOT_FOUND")
        _check_messages(messages)
        now = self._clock.now()
        ids = []
        for data, attributes in messages:
            message_id = str(next(self._message_ids))
            ids.append(message_id)
            for subscription in self._topics[topic]:
                subscription.accept(_Message(message_id, now, data, MappingProxyType(dict(attributes))))
        return ids


def _wake(puller: asyncio.Future[None]) -> None:
    if not puller.done():
        puller.set_result(None)


def _check_messages(messages: Sequence[Outgoing]) -> None:
    check_publish(messages)
    for data, attributes in messages:
        if len(attributes) > _ATTRIBUTES:
            raise Rejected(f"{len(attributes)} attributes, over {_ATTRIBUTES}", status="INVALID_ARGUMENT")
        if any(len(value.encode()) > _ATTRIBUTE_BYTES for value in attributes.values()):
            raise Rejected(f"an attribute over {_ATTRIBUTE_BYTES} bytes", status="INVALID_ARGUMENT")
        if not data and not attributes:
            raise Rejected("a message with neither data nor attributes", status="INVALID_ARGUMENT")
