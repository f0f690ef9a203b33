"""What a reader says of results: sums of what is counted, no more than a definition allows, lookups within limits."""

import asyncio
from random import Random

import pytest

from tally.clock import SECOND
from tally.errors import Busy
from tally.limits import LOOKUP_BYTES, OPTIONS, PARTITIONS, SHARD_BYTES
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.store import FakeStore
from tally.votes import keys, ledger, results
from tally.votes.edit import NewOption, Patch
from tally.votes.ledger import Segment, Shard
from tests.trouble import TroubledStore
from tests.unit.votes import reading
from tests.unit.votes.reading import make, set_counts


def test_results_are_the_sum_of_the_shards_that_are_there(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> None:
    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        await make(store, tally_clock, partitions=int(PARTITIONS))
        await set_counts(store, {0: (1, 2), 7: (10,), 255: (100, 200)})
        found = await reading.reader(store, tally_clock).read("lunch")
        assert found.counts == (111, 202)
        assert found.as_of == tally_clock.now()

    tally_loop.run(scene())


def test_keys_that_are_deferred_are_asked_for_again_and_never_taken_for_zero(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        await make(store, tally_clock, partitions=64)
        await set_counts(store, dict.fromkeys(range(64), (1, 0)))
        plan = Plan(Random(1), {"get:deferred": 0.7})
        reader = reading.reader(FaultyStore(store, Network(plan)), tally_clock)
        for _ in range(20):
            assert (await reader.read("lunch")).counts == (64, 0)
            await asyncio.sleep(results.SHARED_SECONDS)
        assert plan.fired["get:deferred"] > 20

    tally_loop.run(scene())


def test_counts_of_a_later_version_are_to_be_asked_for_again(
    tally_loop: VirtualLoop, tally_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        await make(store, tally_clock, partitions=2)
        await set_counts(store, {0: (1, 2)})
        monkeypatch.setattr(ledger, "FORMAT", ledger.FORMAT - 1)
        with pytest.raises(Busy) as raised:
            await reading.reader(store, tally_clock).read("lunch")
        assert raised.value.code == "format"

    tally_loop.run(scene())


@pytest.mark.parametrize("options", [1, 2, 100, OPTIONS])
def test_no_lookup_may_be_answered_with_more_than_its_limit(options: int) -> None:
    longest = tuple(Segment(sequence=10**9 + n, records=37_500, live=37_500) for n in range(256))
    shard = Shard(sequence=10**9, ballots=4_000_000, counts=(4_000_000,) * options, segments=longest)
    entity = ledger.shard_entity(keys.shard("p" * 63, 255), shard)
    size = sum(len(str(name)) + len(str(value)) + 16 for name, value in entity.properties.items()) + 200
    assert size * results.lookup_size(options) <= LOOKUP_BYTES
    assert results.lookup_size(options) >= LOOKUP_BYTES // SHARD_BYTES


def test_a_poll_of_many_options_is_read_by_several_lookups(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> None:
    async def scene() -> None:
        store = TroubledStore(FakeStore(clock=tally_clock))
        options = tuple(NewOption(id=f"o-{number}") for number in range(OPTIONS))
        await make(store, tally_clock, options=options, partitions=int(PARTITIONS))
        store.gets.clear()
        await reading.reader(store, tally_clock).read("lunch")
        shards = [asked for asked in store.gets if asked[0][0][0] == keys.SHARD]
        assert sum(map(len, shards)) == PARTITIONS
        assert max(map(len, shards)) == results.lookup_size(OPTIONS)

    tally_loop.run(scene())


def test_counts_of_options_that_a_held_definition_does_not_know_yet_are_left_out(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        await make(store, tally_clock, partitions=1)
        await set_counts(store, {0: (1, 2, 3)})
        assert (await reading.reader(store, tally_clock).read("lunch")).counts == (1, 2)

    tally_loop.run(scene())


def test_hidden_results_show_only_by_a_definition_read_after_the_end(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    """One read before it may not know that the end was moved."""

    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        end = tally_clock.now() + 100 * SECOND
        polls = await make(store, tally_clock, partitions=1, results="after-close", closes_at=end)
        await set_counts(store, {0: (1, 2)})
        reader = reading.reader(store, tally_clock)
        await polls.amend("lunch", Patch(revision=1, closes_at=end + 1_000 * SECOND))
        await asyncio.sleep(99)
        assert (await reader.read("lunch")).counts is None
        await asyncio.sleep(2)
        assert (await reader.read("lunch")).counts is None
        await asyncio.sleep(997)
        assert (await reader.read("lunch")).counts is None
        await asyncio.sleep(2.1)
        assert (await reader.read("lunch")).counts is None
        await asyncio.sleep(5)
        assert (await reader.read("lunch")).counts == (1, 2)

    tally_loop.run(scene())
