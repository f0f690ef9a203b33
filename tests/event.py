"""An event on virtual time: the shipped functions and workers over fakes that keep Google's quotas.

For the rate model: what it says an event needs is compared with what the code does.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tally.clock import Stamps
from tally.errors import Busy, Unavailable
from tally.ports import Committed, Delete, Outgoing, Upsert, Write
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyPublisher, FaultyPuller, FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.pubsub import FakePubSub
from tally.testing.store import FakeStore
from tally.votes import keys, ledger, scale
from tally.votes.definitions import Definitions
from tally.votes.intake import Cast, Intake
from tally.votes.keyring import KeyRing
from tally.votes.microbatch import MicroBatcher
from tally.votes.poll import Option, Poll
from tally.votes.polls import to_entity
from tally.votes.stream import Streams
from tally.votes.worker import Worker

LATENCY_SECONDS = 0.02  # of a call, there and back
DRAIN_SECONDS = 120
OPTIONS = ("red", "green", "blue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Votes come at random moments, evenly in the mean. `workers` are those of each stream; `first_quota`: Datastore
    writes a second on a cold kind."""

    votes: int
    minutes: float
    instances: int
    partitions: int
    workers: int
    streams: int
    first_quota: int = scale.RAMP_START


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`writes` are entities inserted and updated; `most_writes` those of the busiest second, deletes included.

    `refused` counts calls over a quota. `drain_seconds`: from the last answer to the last count.
    """

    accepted: int
    counted: int
    messages: int
    commits: int
    writes: int
    deletes: int
    most_writes: int
    refused: int
    drain_seconds: float


def play(event: Event, seed: int = 1) -> Outcome:
    with VirtualLoop(random=Random(f"{seed}/order")) as loop:
        return loop.run(_Play(event, seed).run())


class QuotaStore(FakeStore):
    """Refuses commits over the quota of a second, which grows as the documented ramp says."""

    def __init__(self, clock: VirtualClock, first_quota: int) -> None:
        super().__init__(clock=clock)
        self._first_quota = first_quota
        self.writes_in: Counter[int] = Counter()
        self.commits = self.writes = self.deletes = self.refused = 0

    async def commit(self, writes: Sequence[Write]) -> Committed:
        now = asyncio.get_running_loop().time()
        quota = self._first_quota * scale.RAMP_STEP ** (now // (scale.RAMP_MINUTES * 60))
        if self.writes_in[int(now)] + len(writes) > quota:
            self.refused += 1
            raise Unavailable("over the quota of writes", status="RESOURCE_EXHAUSTED")
        committed = await super().commit(writes)
        self.writes_in[int(now)] += len(writes)
        deletes = sum(isinstance(write, Delete) for write in writes)
        self.commits += 1
        self.writes += len(writes) - deletes
        self.deletes += deletes
        return committed


class QuotaPubSub(FakePubSub):
    """Refuses to publish more bytes in a second than a small region takes."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self._bytes_in: Counter[int] = Counter()
        self.messages = self.refused = 0

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        second = int(asyncio.get_running_loop().time())
        size = sum(max(len(message.data), 1_000) for message in messages)
        if self._bytes_in[second] + size > scale.PUBSUB_BYTES_PER_SECOND:
            self.refused += 1
            raise Unavailable("over the quota of bytes", status="RESOURCE_EXHAUSTED")
        ids = await super().publish(topic, messages)
        self._bytes_in[second] += size
        self.messages += len(messages)
        return ids


class _Play:
    def __init__(self, event: Event, seed: int) -> None:
        self._event = event
        self._random = Random(f"{seed}/votes")
        self._clock = VirtualClock()
        self._store = QuotaStore(self._clock, event.first_quota)
        self._pubsub = QuotaPubSub(self._clock)
        self._topics = tuple(f"votes-{stream}" for stream in range(event.streams))
        for topic in (*self._topics, "dead"):
            self._pubsub.create_topic(topic)
            self._pubsub.create_subscription(topic, topic)
        plan = Plan(Random(f"{seed}/calls"), {}, latency=LATENCY_SECONDS, deadline=8)
        self._network = Network(plan, waiting=("pull",))
        self._accepted = 0
        self._poll = Poll(
            id="event",
            title="",
            options=tuple(Option(id=option, label=option) for option in OPTIONS),
            created_at=0,
            partitions=event.partitions,
            key_version="1",
        )

    async def run(self) -> Outcome:
        event = self._event
        await self._store.commit([Upsert(to_entity(self._poll))])
        functions = [self._function() for _ in range(event.instances)]
        stop = asyncio.Event()
        working = [
            asyncio.create_task(self._worker(topic).run(stop)) for topic in self._topics for _ in range(event.workers)
        ]
        await asyncio.sleep(2)  # they try the version guard first
        self._store.commits = self._store.writes = self._store.deletes = self._store.refused = 0
        self._store.writes_in.clear()
        await self._vote(functions)
        last = asyncio.get_running_loop().time()
        for _ in range(DRAIN_SECONDS * 10):
            if self._counted() == self._accepted:
                break
            await asyncio.sleep(0.1)
        drained = asyncio.get_running_loop().time() - last
        stop.set()
        await asyncio.gather(*working)
        return Outcome(
            accepted=self._accepted,
            counted=self._counted(),
            messages=self._pubsub.messages,
            commits=self._store.commits,
            writes=self._store.writes,
            deletes=self._store.deletes,
            most_writes=max(self._store.writes_in.values()),
            refused=self._store.refused + self._pubsub.refused,
            drain_seconds=drained,
        )

    async def _vote(self, functions: list[Intake]) -> None:
        """Let each vote come at its moment, to an instance at random, as a load balancer would have it."""
        event, pending = self._event, set[asyncio.Task[None]]()
        mean = event.minutes * 60 / event.votes
        for number in range(event.votes):
            await asyncio.sleep(self._random.expovariate(1 / mean))
            task = asyncio.create_task(self._cast(self._random.choice(functions), number))
            pending.add(task)
            task.add_done_callback(pending.discard)
        while pending:
            await asyncio.wait(pending)

    async def _cast(self, intake: Intake, number: int) -> None:
        vote = Cast(option=OPTIONS[number % len(OPTIONS)], voter=f"voter-{number}")
        while True:
            try:
                await intake.vote(self._poll.id, vote, None)
            except Busy as busy:
                await asyncio.sleep(busy.retry_after)
            else:
                self._accepted += 1
                return

    def _function(self) -> Intake:
        streams = Streams(self._topics)
        publisher = FaultyPublisher(self._pubsub, self._network)
        batcher = MicroBatcher(publisher, self._clock, self._random, streams.linger_seconds)
        definitions = Definitions(self._faulty_store(), self._clock, self._random, KeyRing({"1": b"k" * 32}))
        return Intake(definitions, batcher, Stamps(self._clock), streams, lambda: bytes(16))

    def _worker(self, topic: str) -> Worker:
        return Worker(
            self._faulty_store(),
            FaultyPuller(self._pubsub.puller(topic), self._network),
            FaultyPublisher(self._pubsub, self._network),
            dead_letter_topic="dead",
            clock=self._clock,
            random=self._random,
        )

    def _faulty_store(self) -> FaultyStore:
        return FaultyStore(self._store, self._network)

    def _counted(self) -> int:
        shards = (self._store.entities.get(keys.shard("event", number)) for number in range(self._event.partitions))
        return sum(sum(ledger.parse_shard(shard).counts) for shard in shards if shard)
