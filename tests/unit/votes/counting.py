"""Counters of one partition over a scripted store, and what they count."""

import asyncio
from collections.abc import Iterable

from tally.ports import Entity, Key
from tally.testing.store import FakeStore
from tally.votes import keys, ledger
from tally.votes.counter import Counter
from tally.votes.records import Mask, Records
from tests.unit.votes.scripted import ScriptedStore
from tests.unit.votes.test_ledger import records

SHARD = keys.shard("p", 0)


def counter(store: ScriptedStore, *, fold_from: int = 32, revote: str = "keep") -> Counter:
    return Counter(store, "p", 0, revote, loads=asyncio.Semaphore(2), fold_from=fold_from)  # type: ignore[arg-type]  # literal


async def count(made: Counter, votes: Records) -> Mask:
    await made.refresh()
    return await made.commit(votes)


async def totals(store: ScriptedStore) -> tuple[int, ...]:
    (entity,) = (await store.store.get([SHARD])).found
    return ledger.parse_shard(entity).counts


def voters(numbers: Iterable[int], option: int = 0, at: int = 5) -> Records:
    return records((number, option, at) for number in numbers)


async def commit_each(made: Counter, numbers: Iterable[int], at: int = 5) -> None:
    for number in numbers:
        assert (await count(made, voters([number], at=at))).all()


def entities(store: ScriptedStore) -> dict[Key, Entity]:
    """Return what is in the fake store beneath, to be changed behind the counters' backs."""
    fake = store.store
    assert isinstance(fake, FakeStore)
    return fake.entities


def held(made: Counter) -> ledger.Partition:
    partition = made._held
    assert partition is not None
    return partition
