"""One run's world: virtual time, the watched store and Pub/Sub behind a faulty network, polls, and an event log."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from tally.clock import SECOND
from tally.errors import BackendError, Rejected
from tally.ports import Entity, Insert, Key, Write
from tally.testing import process
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyPublisher, FaultyStore, Network, SeededManners
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.store import Flavour, key_of
from tally.votes import lane, ledger
from tests.simulation.truth import Truth, WatchedPubSub, WatchedStore, records

SMALL_SEGMENT = 12  # records
MORE_STREAMS = 0.25  # share of the seeds
CLOCK_SKEW = 19.5  # seconds, either way: just within the bound that the guarantee states

RATES = {
    "commit:refused": 0.03,
    "commit:failed-after": 0.04,
    "commit:reply-lost": 0.03,
    "commit:request-lost": 0.01,
    "commit:applied-late": 0.04,
    "commit:repeated": 0.03,
    "commit:slow": 0.04,
    "commit:aborted": 0.03,
    "commit:aborted-after": 0.03,
    "get:refused": 0.03,
    "get:request-lost": 0.01,
    "get:slow": 0.03,
    "get:deferred": 0.15,
    "get:torn": 0.1,
    "publish:refused": 0.04,
    "publish:failed-after": 0.04,
    "publish:reply-lost": 0.03,
    "publish:request-lost": 0.01,
    "publish:applied-late": 0.04,
    "publish:repeated": 0.04,
    "publish:slow": 0.05,
    "pull:refused": 0.03,
    "pull:reply-lost": 0.03,
    "pull:slow": 0.02,
    "pull:empty": 0.05,
    "acknowledge:refused": 0.04,
    "acknowledge:reply-lost": 0.03,
    "acknowledge:request-lost": 0.03,
    "acknowledge:applied-late": 0.05,
    "extend:refused": 0.04,
    "extend:request-lost": 0.03,
    "extend:applied-late": 0.03,
    "message:copied": 0.08,
    "message:delayed": 0.08,
    "message:swapped": 0.2,
    "ack:forgotten": 0.04,
    "ack:late-taken": 0.5,
}
# What the run does by itself (chaos.py, traffic.py), counted in the same table.
EVENTS = (
    "process:killed",
    "process:killed-between-awaits",
    "process:frozen",
    "process:came-back",
    "process:terminated",
    "clock:stepped",
    "outage:store",
    "outage:pubsub",
    "outage:slow",
    "outage:workers",
    "partition:poisoned",
    "vote:poisoned",
    "client:gone",
    "poll:closed-early",
    "poll:deleted",
    "option:withdrawn",
    "option:added",
    "revote:swapped",
    "revote:tied",
    "message:hostile",
    "message:newer-version",
    "shard:newer-format",
    "ledger:recounted",
    "ledger:purged",
    "worker:small-memory",
    "ledger:folded",
    "segment:filled",
    "streams:mixed",
)


class World:
    def __init__(self, seed: int, *, log: bool = False) -> None:
        self.seed = seed
        self.log: list[str] | None = [] if log else None
        dice = self.random("world")
        self.truth = Truth(self.note if log else None)
        self.verdict: list[str] = []
        self.loop = VirtualLoop(random=self.random("order"))
        self.clock = VirtualClock()
        intensity = dice.choice((0.3, 1.0, 1.5))
        rates = {fault: rate * intensity for fault, rate in RATES.items()}
        self.plan = Plan(self.random("faults"), rates, latency=dice.choice((0.002, 0.02, 0.1)), deadline=8)
        if log:
            self.plan.on_fired = self.note
        self.segment_records = dice.choice((ledger.SEGMENT_RECORDS, SMALL_SEGMENT))
        flavours: tuple[Flavour, ...] = ("datastore", "firestore")
        self.store = WatchedStore(self.truth, clock=self.clock, flavour=dice.choice(flavours))
        self.pubsub = WatchedPubSub(self.truth, clock=self.clock, manners=SeededManners(self.plan))
        for name in ("votes", "votes-dead"):
            self.pubsub.create_topic(name)
            self.pubsub.create_subscription(name, name, answer_messages=dice.choice((5, 100, 1_000)))
        self.topics: tuple[str, ...] = ("votes",)
        if self.random("streams").random() < MORE_STREAMS:
            self.topics = ("votes", "votes-1")
            self.pubsub.create_topic("votes-1")
            self.pubsub.create_subscription("votes-1", "votes-1")
            self.note("votes go by two streams, of which one function knows", "streams:mixed")
        self.votes = [self.pubsub.puller(topic) for topic in self.topics]
        for votes in self.votes:
            votes.on_settled = self.truth.saw_settled
        self.network = Network(self.plan, waiting=("pull",))
        self.faulty_store = FaultyStore(self.store, self.network)
        self.faulty_store.poison = self._poison
        self.poisoned_shards: dict[Key, BackendError] = {}
        self.publisher = FaultyPublisher(self.pubsub, self.network)

    def random(self, what: str) -> Random:
        """Return a stream of the seed's own for one concern: changes elsewhere do not shift it."""
        return Random(f"{self.seed}/{what}")

    def _poison(self, writes: Sequence[Write]) -> BackendError | None:
        """Refuse a commit to a poisoned partition, and for ever one that holds the poisoned vote."""
        for write in writes:
            key = key_of(write)
            if error := self.poisoned_shards.get(key[:1]):
                return error
            if isinstance(write, Insert) and key[-1][0] == "Segment" and self._has_poison(write.entity):
                self.plan.fired["vote:poisoned"] += 1
                return Rejected("this vote is poison", status="INVALID_ARGUMENT")
        return None

    def _has_poison(self, segment: Entity) -> bool:
        poisoned = self.truth.poisoned
        return poisoned is not None and any(record.ballot == poisoned for record in records(segment))

    def skewed_clock(self, dice: Random) -> VirtualClock:
        return VirtualClock(skew=round(dice.uniform(-CLOCK_SKEW, CLOCK_SKEW) * SECOND))

    def note(self, text: str, event: str | None = None) -> None:
        """Write a line of the log, and count the event."""
        if event is not None:
            self.plan.fired[event] += 1
        if self.log is not None:
            owner = process.current()
            self.log.append(f"{self.loop.time():10.4f}  {owner.name if owner else '-':<12}  {text}")

    @contextmanager
    def scale(self) -> Iterator[None]:
        """Make segments of a few records while the run lasts, so that a commit cannot take all that waits."""
        records = self.segment_records
        with (
            patch.object(ledger, "SEGMENT_RECORDS", records),
            patch.object(ledger, "_FULL", records * 9 // 10),
            patch.object(lane, "SEGMENT_RECORDS", records),
        ):
            yield

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Take Tally's own log events into the event log while the run lasts, or keep them silent."""
        logger = logging.getLogger("tally")
        before = logger.level, logger.propagate
        handler = _Notes(self)
        logger.setLevel(logging.CRITICAL if self.log is None else logging.DEBUG)
        logger.propagate = False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.level, logger.propagate = before


class _Notes(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "ledger-went-back":
            self._world.truth.say("a worker holds what is no prefix of the ledger: this store never goes back")
        fields = getattr(record, "fields", {})
        self._world.note(" ".join([record.getMessage(), *(f"{name}={value}" for name, value in fields.items())]))
