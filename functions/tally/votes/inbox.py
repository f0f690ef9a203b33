"""The messages that a worker holds: room for more, leases kept alive, and the ack once every vote is settled.

To let go of a message is to stop extending it: it comes again when its lease ends. Only shutdown gives leases back.
What cannot be settled while all else can holds at most a share of the room: votes of parked partitions, votes whose
definition cannot be read, dead letters that cannot be published.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tally import limits
from tally.errors import BackendError, Rejected
from tally.logs import event
from tally.ports import Outgoing, Publisher, Puller, Received
from tally.votes.decoder import Decoded

_HALF_DEADLINE = limits.ACK_DEADLINE_SECONDS / 2
_EXTEND_PERIOD = 1.0
_ACK_PAUSE = 0.005
_RETRY_PAUSE = 0.5
_ATTRIBUTE_BYTES = 400
# What is stuck holds at most one part in so many of the bounds, of each kind.
_SHARE = 4


class Held(msgspec.Struct, eq=False, gc=False):
    """A message: how many of its votes are not settled, and the dead letters to publish once none is.

    There may be 60,000 of them, in no cycle: the garbage collector is to pass them over.
    """

    ack_id: str
    message_id: str
    published_at: int
    size: int
    expires: float
    open: int
    letters: tuple[Outgoing, ...] = ()


class Inbox:
    """Messages are known by a number that no two deliveries share. Times are the event loop's."""

    def __init__(self, puller: Puller, publisher: Publisher, dead_letter_topic: str) -> None:
        self.held: dict[int, Held] = {}
        self.next_number = 0
        self.settled_messages = 0
        self.dead_letters = 0
        self.let_go_at = float("-inf")
        self._puller = puller
        self._publisher = publisher
        self._dead_letter_topic = dead_letter_topic
        self._bytes = 0
        self._unacknowledged = 0
        self._lettered_bytes = 0
        self._reserved = 0
        self._received = 0
        self._room = asyncio.Event()
        self._acks: list[Held] = []
        self._lettered: list[Held] = []
        self._wake_ack = asyncio.Event()
        self._wake_letter = asyncio.Event()
        self._lettering = asyncio.Lock()
        self._time = asyncio.get_running_loop().time

    @property
    def busy(self) -> bool:
        """Whether anything is received or held, or an ack or dead letter is on its way."""
        return bool(self._received or self.held or self._unacknowledged or self._lettered)

    async def reserve(self) -> None:
        """Wait until the largest answer of one more Pull fits, and keep its room."""
        while not self._fits():
            self._room.clear()
            await self._room.wait()
        self._reserved += 1

    def release_room(self) -> None:
        """Give the room of a Pull back: its messages, if any, are counted by `receive`."""
        self._reserved -= 1
        self._room.set()

    def receive(self, messages: Sequence[Received]) -> None:
        """Keep the room of messages just pulled, for `take` to hold them."""
        self._received += len(messages)
        self._bytes += sum([len(message.data) for message in messages])

    def take(self, messages: Sequence[Received], published: Sequence[int], decoded: Decoded) -> None:
        """Hold messages received, as `decoded` numbers them, until their votes are settled.

        Those of a newer version are not in it: they are let go.
        """
        expires = self._time() + limits.ACK_DEADLINE_SECONDS
        first, self.next_number = self.next_number, self.next_number + len(messages)
        self._received -= len(messages)
        open_votes, letters_of, done = decoded.votes.get, decoded.letters, list[int]()
        for number, (message, instant) in enumerate(zip(messages, published, strict=True), start=first):
            votes = open_votes(number)
            if votes is None:
                self._bytes -= len(message.data)
                continue
            letters = tuple(letters_of.get(number, ())) if letters_of else ()
            size = len(message.data)
            self.held[number] = held = Held(message.ack_id, message.message_id, instant, size, expires, votes, letters)
            if not held.open:
                done.append(number)
        self._done(done)

    def settle(self, owners: NDArray[np.intp]) -> None:
        """Count votes of messages (one number a vote) as settled. Messages let go meanwhile are passed over."""
        self._settle(owners, ())

    def refuse(self, owner: int, votes: int, letter: Outgoing) -> None:
        """Settle votes of a message by a dead letter."""
        self._settle(np.full(votes, owner, np.intp), (letter,))

    def _settle(self, owners: NDArray[np.intp], letters: tuple[Outgoing, ...]) -> None:
        numbers, counts = np.unique(owners, return_counts=True)
        done = list[int]()
        for number, votes in zip(numbers.tolist(), counts.tolist(), strict=True):
            held = self.held.get(number)
            if held is None:
                continue
            held.open -= votes
            if letters:
                held.letters += letters
            if not held.open:
                done.append(number)
        self._done(done)

    def let_go(self, numbers: Iterable[int]) -> None:
        """Stop extending messages and forget them."""
        for number in numbers:
            if held := self.held.pop(number, None):
                self._bytes -= held.size
                self.let_go_at = self._time()
        self._room.set()

    def over_share(self, owners: Iterable[NDArray[np.intp]]) -> bool:
        """Tell whether the messages of these votes hold more than what is stuck may hold."""
        parts = list(owners)
        numbers = np.unique(np.concatenate(parts)).tolist() if parts else []
        return _over_share(len(numbers), sum(held.size for number in numbers if (held := self.held.get(number))))

    async def release_all(self) -> None:
        """Give all leases back at once: only at shutdown."""
        ids = [held.ack_id for held in (*self.held.values(), *self._lettered)]
        self.held.clear()
        self._lettered.clear()
        for part in _parts(ids):
            try:
                await self._puller.extend(part, 0)
            except BackendError as error:
                event("release-failed", status=error.status)
                return

    async def run(self) -> None:
        """Keep leases, publish dead letters and acknowledge, until cancelled. A slow commit starves none of it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._extend_forever())
            group.create_task(self._letter_forever())
            group.create_task(self._ack_forever())

    async def flush(self) -> None:
        """Publish and acknowledge what is ready now, once."""
        await self._publish_letters()
        await self._acknowledge()

    def _fits(self) -> bool:
        pulls = self._reserved + 1
        messages = self._received + len(self.held) + len(self._lettered) + self._unacknowledged
        return (
            messages + pulls * limits.PULL_MESSAGES <= limits.HELD_MESSAGES
            and self._bytes + self._lettered_bytes + pulls * limits.PULL_BYTES <= limits.HELD_BYTES
        )

    def _done(self, numbers: Iterable[int]) -> None:
        """Take messages all of whose votes are settled out of what is held, and let those go on who wait for that."""
        for held in [self.held.pop(number) for number in numbers]:
            self._bytes -= held.size
            if not held.letters:
                self._acks.append(held)
                self._unacknowledged += 1
            elif _over_share(len(self._lettered) + 1, self._lettered_bytes + held.size):
                self.let_go_at = self._time()
                continue
            else:
                self._lettered.append(held)
                self._lettered_bytes += held.size
            self.settled_messages += 1
        self._room.set()
        if self._lettered:
            self._wake_letter.set()
        if self._acks:
            self._wake_ack.set()

    async def _extend_forever(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(_EXTEND_PERIOD)
                now = self._time()
                due = [held for held in (*self.held.values(), *self._lettered) if held.expires - now < _HALF_DEADLINE]
                # Not waited for: a request that hangs is sent again, and lets no other lease lapse meanwhile.
                for start in range(0, len(due), limits.ACK_IDS):
                    group.create_task(self._extend(due[start : start + limits.ACK_IDS]))

    async def _extend(self, part: list[Held]) -> None:
        sent = self._time()
        try:
            await self._puller.extend([held.ack_id for held in part], limits.ACK_DEADLINE_SECONDS)
        except BackendError as error:
            event("extend-failed", status=error.status, messages=len(part))
            return
        for held in part:
            held.expires = max(held.expires, sent + limits.ACK_DEADLINE_SECONDS)  # a later request may be back first

    async def _ack_forever(self) -> None:
        while True:
            await self._wake_ack.wait()
            self._wake_ack.clear()
            await asyncio.sleep(_ACK_PAUSE)
            if not await self._acknowledge():
                self._wake_ack.set()
                await asyncio.sleep(_RETRY_PAUSE)

    async def _acknowledge(self) -> bool:
        now = self._time()
        # An expired lease's ack may do nothing: the message comes again, and its votes are settled already.
        ready = [held for held in self._acks if held.expires > now]
        self._unacknowledged -= len(self._acks) - len(ready)
        self._acks = []
        parts = [ready[start : start + limits.ACK_IDS] for start in range(0, len(ready), limits.ACK_IDS)]
        try:
            outcomes = await asyncio.gather(*(self._acknowledge_part(part) for part in parts))
        except asyncio.CancelledError:
            self._acks += ready  # for the flush: nobody knows which arrived
            raise
        self._room.set()
        return all(outcomes)

    async def _acknowledge_part(self, part: list[Held]) -> bool:
        try:
            await self._puller.acknowledge([held.ack_id for held in part])
        except BackendError as error:
            event("ack-failed", status=error.status, messages=len(part))
            self._acks.extend(part)
            return False
        self._unacknowledged -= len(part)
        return True

    async def _letter_forever(self) -> None:
        while True:
            await self._wake_letter.wait()
            self._wake_letter.clear()
            if not await self._publish_letters():
                self._wake_letter.set()
                await asyncio.sleep(_RETRY_PAUSE)

    async def _publish_letters(self) -> bool:
        """Publish the dead letters of settled messages, then acknowledge these; False if some must be tried again."""
        # One at a time: what two publish at once, each would take off, and with it a letter that neither published.
        async with self._lettering:
            return await self._publish_letters_alone()

    async def _publish_letters_alone(self) -> bool:
        count: int = limits.PUBLISH_MESSAGES
        while self._lettered:
            batch = self._letter_batch(count)
            try:
                await self._publisher.publish(self._dead_letter_topic, [letter for _, letter in batch])
            except Rejected as error:
                if len(batch) == 1:
                    event("dead-letter-rejected", level=logging.ERROR, reason=error.message)
                    self._take_off([batch[0][0]])
                count = 1
                continue
            except BackendError as error:
                event("dead-letter-failed", status=error.status, letters=len(batch))
                return False
            self.dead_letters += len(batch)
            for held, _ in batch:  # each message's letters lead the batch in their order
                held.letters = held.letters[1:]
            done = list(dict.fromkeys(held for held, _ in batch if not held.letters))
            self._take_off(done)
            self._acks.extend(done)
            self._unacknowledged += len(done)
            self._wake_ack.set()
        return True

    def _take_off(self, done: Sequence[Held]) -> None:
        """Take messages off those whose dead letters wait."""
        gone = set(map(id, done))
        self._lettered = [held for held in self._lettered if id(held) not in gone]
        self._lettered_bytes -= sum(held.size for held in done)
        self._room.set()

    def _letter_batch(self, count: int) -> list[tuple[Held, Outgoing]]:
        size, batch = 0, list[tuple[Held, Outgoing]]()
        for held in self._lettered:
            for letter in held.letters:
                size += len(letter.data) + _ATTRIBUTE_BYTES
                if batch and (len(batch) >= count or size > limits.PUBLISH_BYTES):
                    return batch
                batch.append((held, letter))
        return batch


def _over_share(messages: int, size: int) -> bool:
    return messages * _SHARE > limits.HELD_MESSAGES or size * _SHARE > limits.HELD_BYTES


def _parts(ids: list[str]) -> Iterable[list[str]]:
    return (ids[start : start + limits.ACK_IDS] for start in range(0, len(ids), limits.ACK_IDS))
