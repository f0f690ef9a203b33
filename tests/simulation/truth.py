"""What is in the store and in Pub/Sub, watched from below the faults and decoded here, not by the code under test."""

import json
import struct
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tally import limits
from tally.clock import Clock
from tally.ports import Committed, Delete, Entity, Insert, Key, Outgoing, Write
from tally.testing.pubsub import FakePubSub, Manners
from tally.testing.store import FakeStore, Flavour, key_of

KEY = bytes(range(32))
Rank: TypeAlias = tuple[int, int]  # accepted_at, option number


class Copy(NamedTuple):
    poll: str
    ballot: bytes
    option: str
    accepted_at: int


class Record(NamedTuple):
    ballot: bytes
    rank: Rank


def ballot_id(poll: str, voter: str) -> bytes:
    digest = blake2b(digest_size=16, key=KEY)
    for part in (poll.encode(), voter.encode()):
        digest.update(len(part).to_bytes(2, "big") + part)
    return digest.digest()


def copies(data: bytes) -> tuple[Copy, ...]:
    """Return the votes of a message, without the groups and votes in it that make no sense."""
    try:
        message = msgspec.json.decode(data)
        return tuple(_copies(message)) if message["v"] == 1 else ()
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return ()


def _copies(message: dict[str, Any]) -> Iterable[Copy]:
    for group in message["groups"]:
        ballots = b64decode(group["ballots"])
        if len(ballots) != 16 * len(group["choices"]):
            continue
        for row, (choice, at) in enumerate(zip(group["choices"], group["accepted_at"], strict=True)):
            if choice >= len(group["options"]):
                continue
            yield Copy(group["poll"], ballots[16 * row : 16 * row + 16], group["options"][choice], at)


def records(segment: Entity) -> Sequence[Record]:
    """Return the records of a Segment entity: 24 bytes each, ballot id, then accepted_at · 1024 + option number."""
    data = segment.properties["records"]
    assert isinstance(data, bytes)
    return _records(data)


@lru_cache(maxsize=1_000)  # a segment is looked at when it is written, and by several oracles in the end
def _records(data: bytes) -> Sequence[Record]:
    return [Record(ballot, (rank >> 10, rank & 1023)) for ballot, rank in struct.iter_unpack(">16sQ", data)]


class Truth:
    """`wrong` collects what must never happen, as sentences; `tell`, if given, is told all that happens."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self._tell = tell
        self.wrong: list[str] = []
        self.polls: dict[str, dict[str, Any]] = {}
        self.published: dict[str, tuple[Copy, ...]] = {}
        self.newer: set[str] = set()
        self.poisoned: bytes | None = None
        self.newer_shards: set[Key] = set()
        self.letters: dict[Copy, str] = {}
        self.lettered_messages: set[str] = set()
        self.committed: dict[tuple[str, bytes], Rank] = {}
        self.commits = 0
        self.folds = 0
        self.largest_segment = 0

    def say(self, sentence: str) -> None:
        self.wrong.append(sentence)
        if self._tell:
            self._tell(f"WRONG: {sentence}")

    def rank(self, copy: Copy) -> Rank:
        options = [option["id"] for option in self.polls[copy.poll]["options"]]
        return copy.accepted_at, options.index(copy.option) if copy.option in options else -1

    def better(self, poll: str, one: Rank, other: Rank) -> Rank:
        return min(one, other) if self.polls[poll]["revote"] == "keep" else max(one, other)

    def is_counted(self, copy: Copy) -> bool:
        """Say whether the ledger holds the copy, or one that beats it."""
        held = self.committed.get((copy.poll, copy.ballot))
        return held is not None and self.better(copy.poll, held, self.rank(copy)) == held

    def saw_commit(self, writes: Sequence[Write]) -> None:
        if len(writes) > limits.COMMIT_MUTATIONS:
            self.say(f"a commit of {len(writes)} writes")
        for write in writes:
            if key_of(write)[:1] in self.newer_shards:
                self.say(f"a ledger of a later format was written: {key_of(write)}")
            kind = key_of(write)[-1][0]
            if kind == "Segment" and isinstance(write, Insert):
                self._saw_segment(write.entity)
            elif kind == "Poll" and not isinstance(write, Delete):
                poll = json.loads(str(write.entity.properties["definition"]))
                self.polls[poll["id"]] = poll
            elif kind == "Segment":
                self.folds += 1

    def _saw_segment(self, segment: Entity) -> None:
        self.commits += 1
        self.largest_segment = max(self.largest_segment, len(records(segment)))
        poll = str(segment.key[0][1]).rpartition(":")[0]
        if poll not in self.polls:
            return  # a probe's
        if self._tell:
            self._tell(f"{segment.key[0][1]} has segment {segment.key[-1][1]} of {len(records(segment))} records")
        for ballot, rank in records(segment):
            held = self.committed.get((poll, ballot), rank)
            self.committed[poll, ballot] = self.better(poll, held, rank)

    def saw_publish(self, topic: str, ids: Sequence[str], messages: Sequence[Outgoing]) -> None:
        for message_id, message in zip(ids, messages, strict=True):
            if self._tell:
                self._tell(f"{topic} has message {message_id} of {len(copies(message.data))} votes")
            if topic != "votes-dead":
                self.published[message_id] = votes = copies(message.data)
                if message.attributes.get("v") == "2":
                    self.newer.add(message_id)
                if len(message.data) > limits.MESSAGE_BYTES or len(votes) > limits.MESSAGE_VOTES:
                    self.say(f"a message of {len(votes)} votes and {len(message.data)} bytes")
            else:
                self.lettered_messages.add(message.attributes["message_id"])
                self.letters.update((copy, message.attributes["reason"]) for copy in copies(message.data))

    def saw_settled(self, message_id: str) -> None:
        """Nothing is acknowledged before it is committed, or a dead letter."""
        votes = self.published[message_id]
        if self._tell:
            self._tell(f"message {message_id} is settled")
        if message_id in self.newer:
            self.say(f"message {message_id} of a later version is acknowledged")
        lost = [copy for copy in votes if not self.is_counted(copy) and copy not in self.letters]
        if lost or (not votes and message_id not in self.lettered_messages):
            self.say(f"message {message_id} is acknowledged, {len(lost)} of its {len(votes)} votes are nowhere")

    def copies_of(self) -> dict[tuple[str, bytes], list[Copy]]:
        """Return all published copies by ballot."""
        found: dict[tuple[str, bytes], list[Copy]] = defaultdict(list)
        for votes in self.published.values():
            for copy in votes:
                found[copy.poll, copy.ballot].append(copy)
        return found


class WatchedStore(FakeStore):
    """`write` is for the simulation itself: nobody sees it."""

    def __init__(self, truth: Truth, *, clock: Clock, flavour: Flavour) -> None:
        super().__init__(clock=clock, flavour=flavour)
        self._truth = truth

    async def commit(self, writes: Sequence[Write]) -> Committed:
        answer = await super().commit(writes)
        self._truth.saw_commit(writes)
        return answer

    async def write(self, writes: Sequence[Write]) -> None:
        await super().commit(writes)


class WatchedPubSub(FakePubSub):
    def __init__(self, truth: Truth, *, clock: Clock, manners: Manners) -> None:
        super().__init__(clock=clock, manners=manners)
        self._truth = truth

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        ids = await super().publish(topic, messages)
        self._truth.saw_publish(topic, ids, messages)
        return ids
