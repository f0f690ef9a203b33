"""What a counter reads of its partition, all of it or what is new: in few lookups, and never a part for the whole."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tally import limits
from tally.errors import Refused, Unavailable
from tally.ports import Key, Write
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import keys, ledger
from tally.votes.counter import Counter
from tally.votes.ledger import Corrupt, NewerFormat
from tests.unit.votes.counting import SHARD, commit_each, count, counter, entities, held, totals, voters
from tests.unit.votes.scripted import ScriptedStore


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(FakeStore())


def apply(store: ScriptedStore, writes: Sequence[Write]) -> None:
    """Commit at once, from inside another call."""
    step = store.store.commit(writes)
    with pytest.raises(StopIteration):
        step.send(None)


def defer_once(store: ScriptedStore, deferred: Callable[[Key], bool]) -> None:
    """Have each of these keys, the first time that it is asked for, be asked for again."""
    before: set[Key] = set()

    def defer(asked: Sequence[Key]) -> set[Key]:
        later = {key for key in asked if deferred(key)} - before
        before.update(later)
        return later

    store.defer = defer
    store.gets.clear()


@pytest.mark.parametrize("keys_a_lookup", [limits.LOOKUP_KEYS, 4])
def test_a_catch_up_that_fails_half_way_changes_nothing(
    tally_loop: VirtualLoop, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch, keys_a_lookup: int
) -> None:
    monkeypatch.setattr(limits, "LOOKUP_KEYS", keys_a_lookup)

    async def main() -> None:
        made, other = counter(store), counter(store)
        await count(made, voters([0]))
        for number in range(1, 20):
            await count(other, voters([number]))
        with pytest.raises(Refused):
            await count(made, voters([5, 50]))
        before = held(made)

        def fail_later_segments(asked: Sequence[Key]) -> None:
            if keys.segment(SHARD, 15) in asked:
                raise Unavailable("down", status="UNAVAILABLE")

        store.on_get = fail_later_segments
        with pytest.raises(Unavailable):
            await made.refresh()
        assert held(made) is before
        with pytest.raises(Refused):
            await made.commit(voters([5, 50]))
        store.on_get = lambda asked: None
        assert (await count(made, voters([5, 50]))).all()
        assert await totals(store) == (21,)

    tally_loop.run(main())


@pytest.mark.parametrize(
    "deferred",
    [
        pytest.param(lambda key: key == SHARD, id="the shard"),
        pytest.param(lambda key: key != SHARD, id="all segments"),
        pytest.param(lambda key: key == keys.segment(SHARD, 7), id="one segment"),
        pytest.param(lambda key: True, id="everything"),
    ],
)
@pytest.mark.parametrize("catch_up", [False, True], ids=["load", "catch-up"])
def test_deferred_keys_are_asked_for_again_and_never_taken_for_missing(
    tally_loop: VirtualLoop, store: ScriptedStore, deferred: Callable[[Key], bool], catch_up: bool
) -> None:
    """A shard taken for missing would be a new one, or a purged one, whose votes are dead letters."""

    async def main() -> None:
        first, second = counter(store, fold_from=10_000), counter(store)
        await count(first, voters([0]))
        if catch_up:
            await second.refresh()
        for number in range(1, 12):
            await count(first, voters([number]))
        if catch_up:
            with pytest.raises(Refused):
                await second.commit(voters([99]))
        defer_once(store, deferred)
        await second.refresh()
        assert second.ballots == 12
        assert not second.is_new
        assert sum(SHARD in asked for asked in store.gets) == 1 + deferred(SHARD), "the shard had not moved"

    tally_loop.run(main())


def fold_meanwhile(store: ScriptedStore, folder: Counter, then: Callable[[], None] = lambda: None) -> list[bool]:
    """Have the ledger folded between a look at the shard and the one at its segments, once; the list tells so."""
    folded: list[bool] = []

    def fold_before_segments(asked: Sequence[Key]) -> None:
        if SHARD not in asked and not folded:
            folded.append(True)
            plan = ledger.plan(held(folder), voters([99]), "keep", fold_from=2)
            apply(store, plan.writes(SHARD, held(folder).version))
            then()

    store.on_get = fold_before_segments
    return folded


def test_a_shard_deferred_after_it_has_moved_is_asked_for_again(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    async def main() -> None:
        folder = counter(store, fold_from=10_000)
        await commit_each(folder, range(20))
        folded = fold_meanwhile(store, folder, then=lambda: defer_once(store, lambda key: key == SHARD))
        reader = counter(store)
        await reader.refresh()
        assert folded
        assert reader.ballots == 21

    tally_loop.run(main())


def test_a_listed_segment_that_is_missing_means_that_the_shard_has_moved(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        folder = counter(store, fold_from=10_000)
        await commit_each(folder, range(40))
        folded = fold_meanwhile(store, folder)
        reader = counter(store)
        await reader.refresh()
        assert folded
        assert reader.ballots == 41

    tally_loop.run(main())


def test_a_load_that_does_not_add_up_is_corrupt_and_newer_formats_are_told(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        await count(counter(store), voters(range(3)))
        good = entities(store)[SHARD]
        for changes, error in (({"ballots": 4}, Corrupt), ({"format": 2}, NewerFormat)):
            entities(store)[SHARD] = replace(good, properties={**good.properties, **changes})
            with pytest.raises(error):
                await counter(store).refresh()

    tally_loop.run(main())


def test_loading_a_hundred_thousand_ballots_takes_few_lookups(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    async def main() -> None:
        writer = counter(store)
        for start in range(0, 100_000, 10_000):
            await count(writer, voters(range(start, start + 10_000)))
        store.gets.clear()
        reader = counter(store)
        await reader.refresh()
        assert reader.ballots == 100_000
        assert reader.nbytes <= 40 * 100_000
        assert len(store.gets) <= 3

    tally_loop.run(main())
