"""What the tests of results share: polls with counts in a store, and a reader of them."""

from random import Random

from tally.ports import Store, Upsert
from tally.testing.clock import VirtualClock
from tally.votes import keys, ledger
from tally.votes.definitions import Definitions
from tally.votes.edit import NewOption, NewPoll
from tally.votes.keyring import KeyRing
from tally.votes.ledger import Shard
from tally.votes.polls import Polls
from tally.votes.results import ResultsReader


async def make(store: Store, clock: VirtualClock, **fields: object) -> Polls:
    """Make a poll, `lunch` with the options red and blue unless told otherwise; return what changes polls."""
    polls = Polls(store, clock, Random(1), "1")
    options = (NewOption(id="red"), NewOption(id="blue"))
    await polls.create(NewPoll(**{"id": "lunch", "title": "T", "options": options, **fields}))  # type: ignore[arg-type]  # by name
    return polls


async def set_counts(store: Store, counts: dict[int, tuple[int, ...]]) -> None:
    """Put the counts of partitions of `lunch` into the store."""
    for partition, row in counts.items():
        shard = Shard(sequence=1, ballots=sum(row), counts=row)
        await store.commit([Upsert(ledger.shard_entity(keys.shard("lunch", partition), shard))])


def reader(store: Store, clock: VirtualClock) -> ResultsReader:
    return ResultsReader(store, Definitions(store, clock, Random(1), KeyRing({"1": bytes(32)})), clock)
