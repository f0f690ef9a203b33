"""The counter's one path after a commit that did not plainly succeed, and what it may take for settled."""

from collections.abc import Sequence

import pytest

from tally.errors import Refused, Rejected, Unavailable, UnsafeStore
from tally.ports import Committed, Delete, Write
from tally.testing.loop import VirtualLoop
from tally.testing.store import FakeStore
from tally.votes import keys, ledger
from tally.votes.counter import Purged
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
