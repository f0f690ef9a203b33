"""The counter's one path after a commit that did not plainly succeed, and what it must never take for true."""

from collections.abc import Callable, Sequence

import pytest

from tally import limits
from tally.errors import Refused, Rejected, Unavailable, UnsafeStore
from tally.ports import Committed, Delete, Key, Write
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import keys, ledger
from tally.votes.counter import Purged
from tally.votes.ledger import Corrupt, NewerFormat
from tests.unit.votes.counting import SHARD, count, counter, held, totals, voters
from tests.unit.votes.scripted import ScriptedStore, once
from tests.unit.votes.test_ledger import records

LOST = Unavailable("the reply was lost", status="DEADLINE_EXCEEDED")


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(FakeStore())


def test_one_worker_needs_one_rpc_a_commit_and_two_writes(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    async def main() -> None:
        made = counter(store)
        for number in range(30):
            assert (await count(made, voters([number]))).all()
        assert len(store.gets) == 1
        assert [len(writes) for writes in store.commits] == [2] * 30

    tally_loop.run(main())


def test_copies_of_committed_votes_are_settled_without_a_write(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    async def main() -> None:
        made = counter(store)
        await count(made, voters(range(5)))
        assert (await count(made, voters(range(5), option=1, at=9))).all()
        assert len(store.commits) == 1

    tally_loop.run(main())


def test_a_copy_is_not_settled_by_a_commit_whose_reply_is_not_there(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        made = counter(store)
        store.on_commit = once(Unavailable("refused", status="UNAVAILABLE"))
        with pytest.raises(Unavailable):
            await count(made, voters([1]))
        await made.refresh()
        assert not ledger.settled(held(made), voters([1]), "keep").any()

    tally_loop.run(main())


def test_a_lost_reply_is_resolved_by_one_lookup_and_nothing_is_read_again(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        made = counter(store)
        for number in range(3):
            await count(made, voters([number]))
        store.on_commit = once(LOST, after=True)
        with pytest.raises(Unavailable):
            await count(made, voters([3]))
        store.gets.clear()
        assert (await count(made, voters([3]))).all()
        assert len(store.gets) == 1
        assert keys.segment(SHARD, 1) not in store.gets[0]
        assert await totals(store) == (4,)

    tally_loop.run(main())


def test_a_commit_applied_after_the_reader_looked_is_met_by_the_guard(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        made = counter(store)
        await count(made, voters([1]))
        late: list[Sequence[Write]] = []

        def swallow(writes: Sequence[Write]) -> None:
            if not late:
                late.append(writes)
                raise LOST

        store.on_commit = swallow
        with pytest.raises(Unavailable):
            await count(made, voters([2]))
        await made.refresh()
        await store.store.commit(late[0])
        with pytest.raises(Refused):
            await made.commit(voters([2]))
        assert (await count(made, voters([2]))).all()
        assert await totals(store) == (2,)

    tally_loop.run(main())


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


def defer_once(store: ScriptedStore, deferred: Callable[[Key], bool]) -> None:
    """Have each of these keys, the first time that it is asked for, be asked for again."""
    before: set[Key] = set()

    def defer(asked: Sequence[Key]) -> set[Key]:
        later = {key for key in asked if deferred(key)} - before
        before.update(later)
        return later

    store.defer = defer
    store.gets.clear()


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


def test_a_shard_deferred_after_it_has_moved_is_asked_for_again(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    async def main() -> None:
        folder = counter(store, fold_from=10_000)
        for number in range(20):
            await count(folder, voters([number]))
        moved: list[int] = []

        def fold_before_segments(asked: Sequence[Key]) -> None:
            if SHARD not in asked and not moved:
                moved.append(1)
                plan = ledger.plan(held(folder), voters([99]), "keep", fold_from=2)
                apply(store, plan.writes(SHARD, held(folder).version))
                defer_once(store, lambda key: key == SHARD)

        store.on_get = fold_before_segments
        reader = counter(store)
        await reader.refresh()
        assert moved
        assert reader.ballots == 21

    tally_loop.run(main())


def test_a_listed_segment_that_is_missing_means_that_the_shard_has_moved(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        folder = counter(store, fold_from=10_000)
        for number in range(40):
            await count(folder, voters([number]))
        reader = counter(store)
        folded: list[int] = []

        def fold_before_segments(asked: Sequence[Key]) -> None:
            if SHARD not in asked and not folded:
                folded.append(1)
                plan = ledger.plan(held(folder), voters([99]), "keep", fold_from=2)
                apply(store, plan.writes(SHARD, held(folder).version))

        store.on_get = fold_before_segments
        await reader.refresh()
        assert folded
        assert reader.ballots == 41

    tally_loop.run(main())


def apply(store: ScriptedStore, writes: Sequence[Write]) -> None:
    """Commit at once, from inside another call."""
    step = store.store.commit(writes)
    with pytest.raises(StopIteration):
        step.send(None)


def test_two_workers_stay_exact_with_a_look_ahead_and_few_refusals(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        workers = [counter(store, fold_from=8), counter(store, fold_from=8)]
        refused = 0
        for number in range(200):
            made = workers[number % 2]
            while True:
                try:
                    assert (await count(made, voters([number, number // 2]))).all()
                    break
                except Refused:
                    refused += 1
        assert await totals(store) == (200,)
        assert refused <= 2
        assert len(store.gets) + len(store.commits) <= 2.5 * 200

    tally_loop.run(main())


def test_a_fold_does_not_let_an_old_worker_insert_its_segment_again(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        zombie, other = counter(store), counter(store, fold_from=3)
        await count(zombie, voters([0]))
        await other.refresh()
        for number in range(1, 12):
            await other.commit(voters([number]))
        assert not (await store.store.get([keys.segment(SHARD, 2)])).found
        with pytest.raises(Refused):
            await zombie.commit(voters([1]))
        assert (await count(zombie, voters([1]))).all()
        assert await totals(store) == (12,)

    tally_loop.run(main())


def test_a_conflict_that_answers_ok_stops_the_worker(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    class Lenient(FakeStore):
        async def commit(self, writes: Sequence[Write]) -> Committed:
            answer = await super().commit(writes)
            return Committed(versions=answer.versions, conflict_detected=True)

    async def main() -> None:
        store.store = Lenient()
        with pytest.raises(UnsafeStore, match="version guard"):
            await count(counter(store), voters([1]))

    tally_loop.run(main())


def test_a_purged_shard_is_told_from_a_new_one(tally_loop: VirtualLoop, store: ScriptedStore) -> None:
    async def main() -> None:
        made = counter(store)
        await count(made, voters([1]))
        await store.store.commit([Delete(key=SHARD), Delete(key=keys.segment(SHARD, 1))])
        with pytest.raises(Refused):
            await count(made, voters([2]))
        with pytest.raises(Purged):
            await made.refresh()

    tally_loop.run(main())


def test_a_later_copy_corrects_a_committed_record_after_a_catch_up(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        made, other = counter(store, revote="replace"), counter(store, revote="replace")
        await count(made, records([(1, 0, 5)]))
        await count(other, records([(1, 1, 9)]))
        with pytest.raises(Refused):
            await made.commit(records([(1, 2, 7), (2, 2, 7)]))
        assert (await count(made, records([(1, 2, 7), (2, 2, 7)]))).all()
        assert await totals(store) == (0, 1, 1)

    tally_loop.run(main())


@pytest.mark.parametrize(
    "error", [Rejected("too big", status="INVALID_ARGUMENT"), LOST, Refused("no", status="ABORTED")]
)
def test_what_is_held_survives_every_failure(
    tally_loop: VirtualLoop, store: ScriptedStore, error: Unavailable | Rejected | Refused
) -> None:
    async def main() -> None:
        made = counter(store)
        await count(made, voters(range(3)))
        store.on_commit = once(error)
        with pytest.raises(type(error)):
            await count(made, voters([3]))
        assert made.ballots == 3
        assert (await count(made, voters(range(4)))).all()
        assert await totals(store) == (4,)

    tally_loop.run(main())


def test_a_load_that_does_not_add_up_is_corrupt_and_newer_formats_are_told(
    tally_loop: VirtualLoop, store: ScriptedStore
) -> None:
    async def main() -> None:
        await count(counter(store), voters(range(3)))
        fake = store.store
        assert isinstance(fake, FakeStore)
        good = fake.entities[SHARD]
        for changes, error in (({"ballots": 4}, Corrupt), ({"format": 2}, NewerFormat)):
            fake.entities[SHARD] = type(good)(
                key=SHARD, properties={**good.properties, **changes}, version=good.version
            )
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
