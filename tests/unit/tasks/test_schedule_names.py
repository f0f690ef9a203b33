"""What a schedule keeps of tasks that are gone, and for how long: their names; and what a restart restores."""

import pytest

from tally.clock import SECOND
from tally.errors import Conflict, NotFound
from tally.limits import TASK_NAMES_KEPT
from tally.retry import RetryPolicy
from tally.tasks import schedule as schedule_module
from tally.tasks.entry import DAY, HOUR, MINUTE, Ending
from tests.unit.tasks.schedules import FAILED, OK, START, ids, make


def test_purge_removes_all_and_what_was_in_flight_changes_nothing() -> None:
    schedule = make()
    for n in range(3):
        schedule.add(f"t{n}", b"", now=START, eta=START + n * HOUR)
    [dispatch] = schedule.due(START)
    assert schedule.purge(START) == 3
    assert schedule.finish(dispatch, FAILED, START).ending is Ending.STALE
    assert schedule.due(START + DAY) == []
    assert schedule.wake_at(START + DAY) is None


def test_a_deleted_task_in_flight_is_not_tried_again() -> None:
    schedule = make()
    schedule.add("a", b"", now=START)
    [dispatch] = schedule.due(START)
    schedule.delete("a", START)
    assert schedule.finish(dispatch, FAILED, START).ending is Ending.STALE
    with pytest.raises(NotFound):
        schedule.delete("a", START)


@pytest.mark.parametrize("how", ["finished", "deleted", "purged", "given up", "aged"])
def test_a_used_name_stays_taken_until_its_tombstone_ends(how: str) -> None:
    schedule = make(retry=RetryPolicy(max_attempts=1))
    schedule.add("a", b"", now=START)
    with pytest.raises(Conflict) as held:
        schedule.add("a", b"", now=START)
    assert held.value.code == "task-exists"
    gone = START
    if how in ("finished", "given up"):
        [dispatch] = schedule.due(START)
        schedule.finish(dispatch, OK if how == "finished" else FAILED, START)
    elif how == "deleted":
        schedule.delete("a", START)
    elif how == "purged":
        schedule.purge(START)
    else:
        gone = START + 31 * DAY
        schedule.stats(gone)
    with pytest.raises(Conflict) as taken:
        schedule.add("a", b"", now=gone + HOUR - 1)
    assert taken.value.code == "task-name-used"
    schedule.add("a", b"", now=gone + HOUR)


def test_a_generated_name_leaves_no_tombstone() -> None:
    schedule = make()
    schedule.add("a", b"", now=START, named=False)
    schedule.delete("a", START)
    assert not schedule.taken


def test_tombstones_are_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TASK_NAMES_KEPT == 1_000_000
    monkeypatch.setattr(schedule_module, "TASK_NAMES_KEPT", 3)
    schedule = make()
    for n in range(5):
        schedule.add(f"t{n}", b"", now=START)
        schedule.delete(f"t{n}", START)
    assert list(schedule.taken) == ["t2", "t3", "t4"]


def test_a_task_ends_with_the_retention_and_not_before() -> None:
    schedule = make()
    schedule.pause()
    schedule.add("old", b"", now=START)
    schedule.add("new", b"", now=START + DAY)
    assert schedule.stats(START + 31 * DAY - 1).tasks == 2
    assert [entry.id for entry in schedule.tasks(START + 31 * DAY)] == ["new"]
    assert schedule.stats(START + 32 * DAY).tasks == 0


def test_a_name_used_again_is_not_touched_by_answers_to_its_former_task() -> None:
    schedule = make()
    schedule.add("a", b"", now=START, named=False)
    [dispatch] = schedule.due(START)
    schedule.delete("a", START)
    schedule.add("a", b"", now=START)
    assert schedule.finish(dispatch, OK, START).ending is Ending.STALE
    assert ids(schedule.due(START)) == ["a"]


def test_restored_tasks_are_dispatched_again_with_their_counts() -> None:
    before = make()
    before.add("a", b"x", now=START)
    before.add("b", b"y", now=START, eta=START + HOUR)
    [running] = before.due(START)
    before.add("gone", b"", now=START)
    before.delete("gone", START)
    after = make()
    for entry in before.tasks(START):
        after.restore(entry)
    for name, until in before.taken.items():
        after.restore_name(name, until)
    [again] = after.due(START + SECOND)
    assert (again.entry.id, again.attempt, again.entry.payload) == (running.entry.id, 2, b"x")
    assert after.wake_at(START + SECOND) == START + 10 * MINUTE + SECOND
    with pytest.raises(Conflict):
        after.add("gone", b"", now=START + SECOND)
    assert after.add("c", b"", now=START + SECOND).sequence > again.entry.sequence
