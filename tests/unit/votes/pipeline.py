"""A worker over the fakes: polls put straight into the store, messages published, totals read from the shards."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from tally.clock import Clock, Stamps
from tally.ports import Outgoing, Publisher, Puller, Received, Store, Upsert, read
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyPublisher, FaultyStore, Network
from tally.testing.plan import Plan
from tally.votes import batch, decoder, keys, ledger
from tally.votes.batch import Columns, Vote
from tally.votes.definitions import Definitions
from tally.votes.intake import Intake
from tally.votes.keyring import KeyRing
from tally.votes.microbatch import MicroBatcher
from tally.votes.poll import Option, Poll
from tally.votes.polls import to_entity
from tally.votes.records import Records
from tally.votes.stream import Streams
from tally.votes.worker import Worker


def poll(name: str = "p", options: Sequence[str] = ("red", "blue"), partitions: int = 4, **fields: object) -> Poll:
    made = tuple(Option(id=option, label=option) for option in options)
    return Poll(id=name, title="", options=made, created_at=0, partitions=partitions, key_version="1", **fields)  # type: ignore[arg-type]  # free fields


def ballot(poll_id: str, number: int) -> bytes:
    return blake2b(f"{poll_id}/{number}".encode(), digest_size=16).digest()


@dataclass
class Pipeline:
    clock: VirtualClock = field(default_factory=VirtualClock)
    seed: int = 1

    def __post_init__(self) -> None:
        self.backend = FakeBackend(clock=self.clock)
        self.store = self.backend.store

    async def prepare(self, *polls: Poll) -> None:
        await self.backend.prepare()
        if polls:
            await self.store.commit([Upsert(to_entity(made)) for made in polls])

    async def publish(self, votes: Iterable[Vote], *, size: int = 100, **attributes: str) -> None:
        votes = list(votes)
        for start in range(0, len(votes), size):
            data = batch.encode(votes[start : start + size])
            await self.backend.publisher.publish("votes", [Outgoing(data, attributes)])

    def worker(self, publisher: Publisher | None = None, **options: Any) -> Worker:
        return Worker(
            self.store,
            self.backend.puller("votes"),
            publisher or self.backend.publisher,
            dead_letter_topic="votes-dead",
            clock=self.clock,
            random=Random(self.seed),
            **options,
        )

    async def drain(self, workers: int = 1, **options: Any) -> list[int]:
        return await asyncio.gather(
            *(self.worker(**options).run(asyncio.Event(), until_empty=True) for _ in range(workers))
        )

    async def totals(self, made: Poll) -> dict[str, int]:
        found, _ = await read(self.store, [keys.shard(made.id, number) for number in range(made.partitions)])
        totals = dict.fromkeys((option.id for option in made.options), 0)
        for entity in found.values():
            for option, count in zip(made.options, ledger.parse_shard(entity).counts, strict=False):
                totals[option.id] += count
        return totals

    async def dead_letters(self) -> list[Outgoing]:
        return await letters(self.backend.puller("votes-dead"))


class Function:
    """An instance of the function, with a clock of its own and a network that fails by `plan`."""

    def __init__(self, store: Store, publisher: Publisher, clock: Clock, plan: Plan) -> None:
        network = Network(plan)
        random = Random(plan.random.random())
        batcher = MicroBatcher(FaultyPublisher(publisher, network), clock, random)
        definitions = Definitions(FaultyStore(store, network), clock, random, KeyRing({"1": b"k" * 32}))
        self.intake = Intake(definitions, batcher, Stamps(clock), Streams(("votes",)), lambda: random.randbytes(16))


async def letters(puller: Puller) -> list[Outgoing]:
    """Take all messages of a subscription."""
    taken: list[Outgoing] = []
    while received := await puller.pull(1_000):
        taken += [Outgoing(message.data, message.attributes) for message in received]
        await puller.acknowledge([message.ack_id for message in received])
    return taken


def ballots(records: Records | Columns) -> set[bytes]:
    both = zip(records.high.tolist(), records.low.tolist(), strict=True)
    return {high.to_bytes(8) + low.to_bytes(8) for high, low in both}


def ballots_of(messages: Sequence[Outgoing]) -> set[bytes]:
    """Return the ballots of messages of votes."""
    received = [Received("", "", 0, data, attributes) for data, attributes in messages]
    return set[bytes]().union(*map(ballots, decoder.decode(received).columns))


def votes(made: Poll, numbers: Iterable[int], at: int, option: str | None = None) -> list[Vote]:
    options = [entry.id for entry in made.options]
    return [
        Vote(made.id, option or options[number % len(options)], ballot(made.id, number), at + number)
        for number in numbers
    ]
