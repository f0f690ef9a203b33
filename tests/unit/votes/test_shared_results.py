"""Results that several ask for at a time: one read for them all, and none that is late, failed or cut off."""

import asyncio
from collections.abc import Sequence

import pytest

from tally.errors import Unavailable
from tally.ports import Key, Lookup
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import keys, results
from tally.votes.results import ResultsReader
from tests.trouble import TroubledStore, unseen_errors
from tests.unit.votes import reading
from tests.unit.votes.reading import make, set_counts


async def watched(clock: VirtualClock) -> tuple[FakeStore, TroubledStore, ResultsReader]:
    fake = FakeStore(clock=clock)
    store = TroubledStore(fake)
    await make(store, clock, partitions=1)
    await set_counts(fake, {0: (1, 2)})
    return fake, store, reading.reader(store, clock)


def sums(store: TroubledStore) -> int:
    """Return how often the shards were read, and forget it."""
    found = sum(asked[0][0][0] == keys.SHARD for asked in store.gets)
    store.gets.clear()
    return found


def test_requests_of_half_a_second_share_a_read(tally_loop: VirtualLoop, tally_clock: VirtualClock) -> None:
    async def scene() -> None:
        fake, store, reader = await watched(tally_clock)
        first = await asyncio.gather(*[reader.read("lunch") for _ in range(50)])
        assert {found.counts for found in first} == {(1, 2)}
        assert sums(store) == 1
        as_of = first[0].as_of
        await asyncio.sleep(results.SHARED_SECONDS * 0.9)
        await set_counts(fake, {0: (2, 2)})
        shared = await reader.read("lunch")
        assert (shared.counts, shared.as_of) == ((1, 2), as_of)
        await asyncio.sleep(results.SHARED_SECONDS * 0.2)
        anew = await reader.read("lunch")
        assert (anew.counts, anew.as_of) == ((2, 2), tally_clock.now())
        assert sums(store) == 1

    tally_loop.run(scene())


def test_a_read_that_was_long_on_its_way_answers_nobody_who_came_late(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        fake, store, reader = await watched(tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        store.gets.clear()
        store.seconds = 2.0
        early = asyncio.create_task(reader.read("lunch"))
        await asyncio.sleep(1)
        await set_counts(fake, {0: (5, 5)})
        late = await reader.read("lunch")
        assert late.as_of > (await early).as_of
        assert sums(store) == 2

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
        await make(store, tally_clock, partitions=1)
        await set_counts(store, {0: (1, 2)})
        reader = reading.reader(store, tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        totals: list[int] = []

        async def look() -> None:
            totals.append(sum((await reader.read("lunch")).counts or ()))

        store.seconds = 2.0
        early = asyncio.create_task(look())
        await asyncio.sleep(1)
        await set_counts(store, {0: (5, 5)})
        store.seconds = 0.0
        await asyncio.gather(early, look())
        assert totals == [3, 10]

    tally_loop.run(scene())


def test_a_read_that_fails_when_nobody_waits_any_more_is_no_unseen_error(
    tally_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SHARED_SECONDS", 0.001)

    async def scene() -> None:
        _, store, reader = await watched(tally_clock)
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
        _, store, reader = await watched(tally_clock)
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
        _, store, reader = await watched(tally_clock)
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
        _, store, reader = await watched(tally_clock)
        for number in range(20):
            await make(store, tally_clock, id=f"poll-{number}", partitions=1)
            await reader.read(f"poll-{number}")
            await asyncio.sleep(results.SHARED_SECONDS / 4)
        assert len(reader._reads) <= 6

    tally_loop.run(scene())


def test_a_read_that_is_cut_off_at_the_end_of_the_process_is_no_error(
    tally_loop: VirtualLoop, tally_clock: VirtualClock
) -> None:
    async def scene() -> None:
        store = TroubledStore(FakeStore(clock=tally_clock))
        await make(store, tally_clock)
        reader = reading.reader(store, tally_clock)
        await reader.read("lunch")
        await asyncio.sleep(1)
        store.seconds = 60
        asked = asyncio.create_task(reader.read("lunch"))
        await asyncio.sleep(1)
        assert not asked.done()

    tally_loop.run(scene())
