"""What every Store answers to a query. Among equals the emulators differ: by key, up or in the order's direction."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tally import limits
from tally.errors import Rejected
from tally.ports import Entity, Filter, Insert, Key, Query, Store, Value

Rows = list[tuple[Key, dict[str, Value]]]


async def fill(store: Store, rows: Rows) -> None:
    await store.commit(
        [Insert(Entity(key=key, properties=values, indexed=frozenset(values) - {"hidden"})) for key, values in rows]
    )


async def keys(store: Store, query: Query) -> list[int | str]:
    """Return the last name of each key, over all pages."""
    answer: list[int | str] = []
    cursor: bytes | None = None
    while True:
        page = await store.query(replace(query, cursor=cursor))
        assert len(page.entities) <= query.limit
        answer += [entity.key[-1][1] for entity in page.entities]
        cursor = page.cursor
        if cursor is None:
            return answer


@pytest.fixture
async def tasks(store: Store) -> Store:
    rows: Rows = [
        ((("Task", f"t{number}"),), {"due": number % 5, "tag": "even" if number % 2 == 0 else "odd", "hidden": number})
        for number in range(10)
    ]
    await fill(store, [*rows, ((("Other", "x"),), {"due": 1})])
    return store


async def test_a_query_of_a_kind_goes_by_key(tasks: Store) -> None:
    assert await keys(tasks, Query(kind="Task")) == [f"t{number}" for number in range(10)]
    assert await keys(tasks, Query(kind="None")) == []


async def test_a_filter_selects(tasks: Store) -> None:
    for op, expected in (("=", {2, 7}), ("<", {0, 1, 5, 6}), ("<=", {0, 1, 2, 5, 6, 7}), (">", {3, 4, 8, 9})):
        found = await keys(tasks, Query(kind="Task", filters=(Filter("due", op, 2),)))  # type: ignore[arg-type]  # one of the ops
        assert set(found) == {f"t{number}" for number in expected}, op


async def test_filters_are_all_to_hold(tasks: Store) -> None:
    query = Query(kind="Task", filters=(Filter("tag", "=", "even"), Filter("due", ">=", 1), Filter("due", "<", 4)))
    assert set(await keys(tasks, query)) == {"t2", "t6", "t8"}


async def test_an_order_orders_up_and_down(tasks: Store) -> None:
    up = ["t0", "t5", "t1", "t6", "t2", "t7", "t3", "t8", "t4", "t9"]
    keys_up = ["t4", "t9", "t3", "t8", "t2", "t7", "t1", "t6", "t0", "t5"]
    assert await keys(tasks, Query(kind="Task", order=("due",))) == up
    assert await keys(tasks, Query(kind="Task", order=("-due",))) in (up[::-1], keys_up)


async def test_a_second_order_decides_among_equals(tasks: Store) -> None:
    found = await keys(tasks, Query(kind="Task", order=("-due", "tag")))
    assert found == ["t4", "t9", "t8", "t3", "t2", "t7", "t6", "t1", "t0", "t5"]


async def test_a_range_and_its_order_go_together(tasks: Store) -> None:
    query = Query(kind="Task", filters=(Filter("due", "<=", 1),), order=("due",), limit=3)
    assert await keys(tasks, query) == ["t0", "t5", "t1", "t6"]


@pytest.mark.parametrize("limit", [1, 3, 5, 10, 11])
async def test_pages_by_cursor_are_the_whole_answer_once(tasks: Store, limit: int) -> None:
    assert await keys(tasks, Query(kind="Task", limit=limit)) == [f"t{number}" for number in range(10)]
    down = Query(kind="Task", order=("-due",))
    assert await keys(tasks, replace(down, limit=limit)) == await keys(tasks, down)


async def test_a_cursor_goes_on_although_its_entity_is_gone_and_others_have_come(tasks: Store) -> None:
    first = await tasks.query(Query(kind="Task", limit=3))
    await fill(tasks, [((("Task", "t1a"),), {"due": 0}), ((("Task", "t2a"),), {"due": 0})])
    second = await tasks.query(Query(kind="Task", limit=3, cursor=first.cursor))
    assert [entity.key[-1][1] for entity in second.entities] == ["t2a", "t3", "t4"]


async def test_a_cursor_that_no_query_gave_out_is_refused(tasks: Store) -> None:
    with pytest.raises(Rejected):
        await tasks.query(Query(kind="Task", limit=3, cursor=b"none"))


async def test_an_ancestor_bounds_the_answer_to_what_is_below_it(store: Store) -> None:
    shard = (("Shard", "a:1"),)
    rows: Rows = [
        (shard, {}),
        ((*shard, ("Segment", 1)), {"n": 1}),
        ((*shard, ("Segment", 2)), {"n": 2}),
        ((*shard, ("Segment", 10)), {"n": 10}),
        ((("Shard", "a:10"), ("Segment", 3)), {"n": 3}),
        ((("Shard", "a:1x"), ("Segment", 4)), {"n": 4}),
        ((("Segment", 5),), {"n": 5}),
    ]
    await fill(store, rows)
    assert await keys(store, Query(kind="Segment", ancestor=shard)) == [1, 2, 10]
    assert await keys(store, Query(kind="Segment", ancestor=shard, order=("-n",), limit=2)) == [10, 2, 1]


async def test_an_unindexed_property_is_in_the_answer_and_not_in_the_index(tasks: Store) -> None:
    (entity,) = (await tasks.query(Query(kind="Task", filters=(Filter("due", "=", 3),), limit=1))).entities
    assert entity.properties["hidden"] == 3
    assert await keys(tasks, Query(kind="Task", filters=(Filter("hidden", "=", 3),))) == []


async def test_keys_only_gives_keys_and_no_properties(tasks: Store) -> None:
    page = await tasks.query(Query(kind="Task", keys_only=True))
    assert [entity.key for entity in page.entities] == [(("Task", f"t{number}"),) for number in range(10)]
    assert all(not entity.properties for entity in page.entities)


async def test_a_query_gives_the_versions_that_a_commit_may_build_on(tasks: Store) -> None:
    page = await tasks.query(Query(kind="Task", limit=2))
    looked_up = await tasks.get([entity.key for entity in page.entities])
    assert {each.key: each.version for each in page.entities} == {each.key: each.version for each in looked_up.found}


async def test_a_list_is_found_by_each_of_its_items(store: Store) -> None:
    await fill(store, [((("Task", "a"),), {"tags": ("x", "y")}), ((("Task", "b"),), {"tags": ("y",)})])
    for tag, expected in (("x", ["a"]), ("y", ["a", "b"]), ("z", [])):
        assert await keys(store, Query(kind="Task", filters=(Filter("tags", "=", tag),))) == expected


async def test_types_have_an_order_and_a_range_goes_across_them(store: Store) -> None:
    values: dict[str, Value] = {
        "null": None,
        "five": 5,
        "seven": 7,
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "false": False,
        "bytes": b"b",
        "text": "s",
        "float": 1.5,
    }
    await fill(store, [((("Mixed", name),), {"n": value}) for name, value in values.items()])
    names = list(values)
    assert await keys(store, Query(kind="Mixed", order=("n",))) == names
    for op, bound, found in ((">", 5, names[2:]), ("<", False, names[:4]), ("<=", "s", names[:7]), (">", 1.5, [])):
        assert await keys(store, Query(kind="Mixed", filters=(Filter("n", op, bound),))) == found, (op, bound)  # type: ignore[arg-type]  # one of the ops
    assert await keys(store, Query(kind="Mixed", filters=(Filter("n", "=", 5.0),))) == []


async def test_a_page_of_the_largest_entities_there_may_be_is_answered(store: Store) -> None:
    for number in range(1, limits.LARGE_ENTITIES + 1):
        await fill(store, [((("Large", number),), {"hidden": b"x" * 1_048_000})])
    page = await store.query(Query(kind="Large", limit=limits.LARGE_ENTITIES))
    assert len(page.entities) == limits.LARGE_ENTITIES
