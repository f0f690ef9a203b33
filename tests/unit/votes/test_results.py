import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from tally.clock import SECOND
from tally.errors import Busy, Unavailable
from tally.limits import LOOKUP_BYTES, OPTIONS, PARTITIONS, SHARD_BYTES
from tally.ports import Key, Lookup, Upsert
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.store import FakeStore
from tally.votes import keys, ledger, results
from tally.votes.definitions import Definitions
from tally.votes.edit import NewOption, NewPoll, Patch
from tally.votes.keyring import KeyRing
from tally.votes.ledger import Segment, Shard
from tally.votes.polls import Polls
from tally.votes.results import ResultsReader
from tests.trouble import TroubledStore, unseen_errors


async def _counted(store: FakeStore, poll_id: str, counts: dict[int, tuple[int, ...]]) -> None:
    for partition, row in counts.items():
        shard = Shard(sequence=1, ballots=sum(row), counts=row)
        await store.commit([Upsert(ledger.shard_entity(keys.shard(poll_id, partition), shard))])


def _reader(store: object, clock: VirtualClock) -> ResultsReader:
    definitions = Definitions(store, clock, Random(1), KeyRing({"1": bytes(32)}))  # type: ignore[arg-type]  # a Store
    return ResultsReader(store, definitions, clock)  # type: ignore[arg-type]  # a Store


def _new(**fields: object) -> NewPoll:
    options = (NewOption(id="red"), NewOption(id="blue"))
    return NewPoll(**{"id": "lunch", "title": "T", "options": options, **fields})  # type: ignore[arg-type]  # by name


def test_results_are_the_sum_of_the_shards_that_are_there(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> None:
    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        await Polls(store, tally_clock, Random(1), "1").create(_new(partitions=int(PARTITIONS)))
        await _counted(store, "lunch", {0: (1, 2), 7: (10,), 255: (100, 200)})
        found = await _reader(store, tally_clock).read("lunch")
        assert found.counts == (111, 202)
        assert found.as_of == tally_clock.now()

    tally_loop.run(scene())


def test_keys_that_are_deferred_are_asked_for_again_and_never_taken_for_zero(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        await Polls(store, tally_clock, Random(1), "1").create(_new(partitions=64))
        await _counted(store, "lunch", dict.fromkeys(range(64), (1, 0)))
        plan = Plan(Random(1), {"get:deferred": 0.7})
        reader = _reader(FaultyStore(store, Network(plan)), tally_clock)
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
        await Polls(store, tally_clock, Random(1), "1").create(_new(partitions=2))
        await _counted(store, "lunch", {0: (1, 2)})
        monkeypatch.setattr(ledger, "FORMAT", ledger.FORMAT - 1)
        with pytest.raises(Busy) as raised:
            await _reader(store, tally_clock).read("lunch")
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
        await Polls(store, tally_clock, Random(1), "1").create(_new(options=options, partitions=int(PARTITIONS)))
        store.gets.clear()
        await _reader(store, tally_clock).read("lunch")
        shards = [asked for asked in store.gets if asked[0][0][0] == keys.SHARD]
        assert sum(map(len, shards)) == PARTITIONS
        assert max(map(len, shards)) == results.lookup_size(OPTIONS)

    tally_loop.run(scene())


def test_counts_of_options_that_a_held_definition_does_not_know_yet_are_left_out(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        await Polls(store, tally_clock, Random(1), "1").create(_new(partitions=1))
        await _counted(store, "lunch", {0: (1, 2, 3)})
        assert (await _reader(store, tally_clock).read("lunch")).counts == (1, 2)

    tally_loop.run(scene())


def test_hidden_results_show_only_by_a_definition_read_after_the_end(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    """One read before it may not know that the end was moved."""

    async def scene() -> None:
        store = FakeStore(clock=tally_clock)
        polls = Polls(store, tally_clock, Random(1), "1")
        end = tally_clock.now() + 100 * SECOND
        await polls.create(_new(partitions=1, results="after-close", closes_at=end))
        await _counted(store, "lunch", {0: (1, 2)})
        reader = _reader(store, tally_clock)
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


def _sums(store: TroubledStore) -> int:
    """Return how often the shards were read, and forget it."""
    found = sum(asked[0][0][0] == keys.SHARD for asked in store.gets)
    store.gets.clear()
    return found


async def _watched(clock: VirtualClock) -> tuple[FakeStore, TroubledStore, ResultsReader]:
    fake = FakeStore(clock=clock)
    store = TroubledStore(fake)
    await Polls(store, clock, Random(1), "1").create(_new(partitions=1))
    await _counted(fake, "lunch", {0: (1, 2)})
    return fake, store, _reader(store, clock)


def test_requests_of_half_a_second_share_a_read(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> None:
    async def scene() -> None:
        fake, store, reader = await _watched(tally_clock)
        first = await asyncio.gather(*[reader.read("lunch") for _ in range(50)])
        assert {found.counts for found in first} == {(1, 2)}
        assert _sums(store) == 1
        as_of = first[0].as_of
        await asyncio.sleep(results.SHARED_SECONDS * 0.9)
        await _counted(fake, "lunch", {0: (2, 2)})
        shared = await reader.read("lunch")
        assert (shared.counts, shared.as_of) == ((1, 2), as_of)
        await asyncio.sleep(results.SHARED_SECONDS * 0.2)
        anew = await reader.read("lunch")
        assert (anew.counts, anew.as_of) == ((2, 2), tally_clock.now())
        assert _sums(store) == 1

    tally_loop.run(scene())


def test_a_read_that_was_long_on_its_way_answers_nobody_who_came_late(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        fake, store, reader = await _watched(tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        store.gets.clear()
        store.seconds = 2.0
        early = asyncio.create_task(reader.read("lunch"))
        await asyncio.sleep(1)
        await _counted(fake, "lunch", {0: (5, 5)})
        late = await reader.read("lunch")
        assert late.as_of > (await early).as_of
        assert _sums(store) == 2

    tally_loop.run(scene())


def test_totals_never_fall_though_an_answer_of_the_store_comes_late(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    class Late(FakeStore):
        """Looks at once, and answers later."""

        seconds = 0.0

        async def get(self, keys: Sequence[Key]) -> Lookup:
            found = await super().get(keys)
            await asyncio.sleep(self.seconds)
            return found

    async def scene() -> None:
        store = Late(clock=tally_clock)
        await Polls(store, tally_clock, Random(1), "1").create(_new(partitions=1))
        await _counted(store, "lunch", {0: (1, 2)})
        reader = _reader(store, tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        totals: list[int] = []

        async def look() -> None:
            totals.append(sum((await reader.read("lunch")).counts or ()))

        store.seconds = 2.0
        early = asyncio.create_task(look())
        await asyncio.sleep(1)
        await _counted(store, "lunch", {0: (5, 5)})
        store.seconds = 0.0
        await asyncio.gather(early, look())
        assert totals == [3, 10]

    tally_loop.run(scene())


def test_a_read_that_fails_when_nobody_waits_any_more_is_no_unseen_error(
    tally_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SHARED_SECONDS", 0.001)

    async def scene() -> None:
        _, store, reader = await _watched(tally_clock)
        await reader.read("lunch")
        store.seconds, store.error = 0.002, Unavailable("away")
        await asyncio.sleep(0.002)
        asked = asyncio.create_task(reader.read("lunch"))
        await asyncio.sleep(0)
        asked.cancel()
        (read,) = reader._reads.values()
        await asyncio.wait([read.task])

    assert unseen_errors(scene) == []


def test_a_read_that_failed_is_not_shared_with_those_who_come_later(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        _, store, reader = await _watched(tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        store.error = Unavailable("away")
        failed = await asyncio.gather(*[reader.read("lunch") for _ in range(3)], return_exceptions=True)
        assert [type(error) for error in failed] == [Unavailable] * 3
        store.error = None
        assert (await reader.read("lunch")).counts == (1, 2)

    tally_loop.run(scene())


def test_a_client_that_gives_up_takes_no_other_with_it(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> None:
    async def scene() -> None:
        _, store, reader = await _watched(tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        store.seconds = 0.2
        gone, stays = asyncio.create_task(reader.read("lunch")), asyncio.create_task(reader.read("lunch"))
        await asyncio.sleep(0.1)
        gone.cancel()
        assert (await stays).counts == (1, 2)

    tally_loop.run(scene())


def test_what_was_read_for_polls_that_nobody_watches_any_more_is_forgotten(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        _, store, reader = await _watched(tally_clock)
        polls = Polls(store, tally_clock, Random(1), "1")
        for number in range(20):
            await polls.create(_new(id=f"poll-{number}", partitions=1))
            await reader.read(f"poll-{number}")
            await asyncio.sleep(results.SHARED_SECONDS / 4)
        assert len(reader._reads) <= 6

    tally_loop.run(scene())


def test_a_read_that_is_cut_off_at_the_end_of_the_process_is_no_error(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        store = TroubledStore(FakeStore(clock=tally_clock))
        await Polls(store, tally_clock, Random(1), "1").create(_new())
        reader = _reader(store, tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        store.seconds = 60
        asked = asyncio.create_task(reader.read("lunch"))
        await asyncio.sleep(1)
        assert not asked.done()

    tally_loop.run(scene())
