"""A store that goes back behind what it confirmed: what is held agrees with no ledger, and proves nothing."""

import asyncio

import pytest

from tally.errors import Refused, Unavailable
from tally.ports import Upsert
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes.counter import Purged
from tests.unit.votes.counting import SHARD, commit_each, count, counter, entities, totals, voters
from tests.unit.votes.scripted import ScriptedStore, once

LOST = Unavailable("the reply was lost", status="DEADLINE_EXCEEDED")


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(FakeStore())


@pytest.mark.parametrize("commits", [1, 5, 9], ids=["behind", "as long", "longer"])
@pytest.mark.parametrize("fold_from", [2, 10_000], ids=["folded", "not folded"])
def test_of_a_store_that_went_back_nothing_held_is_kept(
    tally_loop: VirtualLoop, store: ScriptedStore, commits: int, fold_from: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker has begun the ledger again, of the same shape, with some of the ballots and others."""

    async def main() -> None:
        made, other = counter(store), counter(store, fold_from=fold_from)
        await commit_each(made, range(0, 10, 2))
        entities(store).clear()
        await commit_each(other, range(1, commits + 1), at=6)
        again = voters(range(20), at=7)
        with pytest.raises(Refused):
            await count(made, again)
        with pytest.raises(Purged):
            await made.refresh()
        made.drop()
        assert (await count(made, again)).all()
        assert await totals(store) == (20,)
        assert made.ballots == 20
        assert [record.levelname for record in caplog.records if record.message == "ledger-went-back"] == ["CRITICAL"]

    tally_loop.run(main())


def test_a_store_that_went_back_is_noticed_where_another_worker_has_gone_on_past_what_is_held(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        made = counter(store)
        await commit_each(made, range(3))
        restored = dict(entities(store))
        await commit_each(made, [3, 4])
        entities(store).clear()
        entities(store).update(restored)
        other = counter(store)
        for first in (10, 20, 30):
            assert (await count(other, voters(range(first, first + 10)))).all()
        with pytest.raises(Refused):
            await count(made, voters([5]))
        with pytest.raises(Purged):
            await made.refresh()

    tally_loop.run(main())


def test_copies_alone_are_settled_by_a_shard_that_was_there_a_moment_ago(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    """They make no commit, which would tell that the store has lost what is held."""

    async def main() -> None:
        made = counter(store)
        await commit_each(made, range(3))
        store.gets.clear()
        for _ in range(5):
            assert (await count(made, voters([1]))).all()
            await asyncio.sleep(1.9)
        assert len(store.gets) == 2
        for begin_again in ([5], []):
            entities(store).clear()
            await commit_each(counter(store), begin_again)
            await asyncio.sleep(2)
            with pytest.raises(Purged):
                await count(made, voters([1]))

    tally_loop.run(main())


def test_a_read_that_fails_proves_nothing_to_the_copies_that_asked_for_it(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        made = counter(store)
        await commit_each(made, range(3))
        await asyncio.sleep(2)
        entities(store).clear()
        store.on_get = once(LOST)
        for error in (Unavailable, Purged):
            with pytest.raises(error):
                await count(made, voters([1]))

    tally_loop.run(main())


def test_a_commit_proves_what_was_there_when_it_was_sent(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    async def main() -> None:
        made = counter(store)
        await commit_each(made, range(3))
        store.gate = asyncio.Event()
        slow = asyncio.create_task(count(made, voters([3])))
        await asyncio.sleep(3)
        store.gate.set()
        await slow
        store.gets.clear()
        assert (await count(made, voters([1]))).all()
        assert len(store.gets) == 1

    tally_loop.run(main())


def test_a_shard_written_again_as_it_was_is_no_other_ledger(
    tally_loop: VirtualLoop, store: ScriptedStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a roll-back of a later version that had only marked it."""

    async def main() -> None:
        made = counter(store)
        await commit_each(made, range(3))
        (shard,) = (await store.store.get([SHARD])).found
        await store.store.commit([Upsert(shard)])
        with pytest.raises(Refused):
            await count(made, voters([3]))
        await commit_each(made, [3])
        assert not [record for record in caplog.records if record.message == "ledger-went-back"]

    tally_loop.run(main())
