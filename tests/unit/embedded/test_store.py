import asyncio
from datetime import UTC, datetime

import pytest

from tally.embedded.backend import SqliteBackend
from tally.embedded.encoding import REQUEST_BYTES
from tally.errors import Refused, Rejected
from tally.limits import LOOKUP_KEYS
from tally.ports import Delete, Entity, Filter, Insert, Key, OnConflict, Query, Update, Upsert, Value

KEY: Key = (("P", "a"),)


def _entity(key: Key = KEY, **properties: Value) -> Entity:
    return Entity(key=key, properties=properties, indexed=frozenset(properties))


def _update(entity: Entity, base: int, on_conflict: OnConflict = OnConflict.FAIL) -> Update:
    return Update(entity=entity, base_version=base, on_conflict=on_conflict)


async def _one(backend: SqliteBackend, key: Key = KEY) -> Entity | None:
    return next(iter((await backend.store.get([key])).found), None)


async def _names(backend: SqliteBackend, query: Query) -> list[int | str]:
    return [entity.key[-1][1] for entity in (await backend.store.query(query)).entities]


async def test_a_version_never_comes_back_after_delete_and_insert(backend: SqliteBackend) -> None:
    first = (await backend.store.commit([Insert(_entity(n=1))])).versions[0]
    await backend.store.commit([Delete(key=KEY, base_version=first)])
    second = (await backend.store.commit([Insert(_entity(n=2))])).versions[0]
    assert second > first
    with pytest.raises(Refused):
        await backend.store.commit([_update(_entity(n=3), first)])
    found = await _one(backend)
    assert found and found.version == second and found.properties == {"n": 2}


async def test_of_concurrent_updates_of_a_version_one_wins(backend: SqliteBackend) -> None:
    base = (await backend.store.commit([Insert(_entity(n=0))])).versions[0]
    results = await asyncio.gather(
        *(backend.store.commit([_update(_entity(n=n), base)]) for n in range(1, 21)), return_exceptions=True
    )
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert all(isinstance(result, Refused) for result in results if isinstance(result, BaseException))


@pytest.mark.parametrize(
    ("write", "status"),
    [
        (Insert(_entity(n=2)), "ALREADY_EXISTS"),
        (_update(_entity(n=2), 999), "FAILED_PRECONDITION"),
        (_update(_entity((("P", "none"),), n=2), 1), "NOT_FOUND"),
        (Delete(key=KEY, base_version=999), "FAILED_PRECONDITION"),
    ],
)
async def test_a_refused_write_leaves_the_whole_commit_undone(
    backend: SqliteBackend, write: Insert | Update | Delete, status: str
) -> None:
    await backend.store.commit([Insert(_entity(n=1))])
    other = (("P", "b"),)
    with pytest.raises(Refused) as raised:
        await backend.store.commit([Upsert(_entity(other, n=9)), write])
    assert raised.value.status == status
    lookup = await backend.store.get([KEY, other])
    assert [entity.properties for entity in lookup.found] == [{"n": 1}]
    assert lookup.missing == (other,)


async def test_keep_stored_answers_ok_and_tells_of_the_conflict(backend: SqliteBackend) -> None:
    base = (await backend.store.commit([Insert(_entity(n=1))])).versions[0]
    other = _entity((("P", "b"),), n=2)
    answer = await backend.store.commit([_update(_entity(n=5), base + 7, OnConflict.KEEP_STORED), Upsert(other)])
    assert answer.conflict_detected and answer.versions[0] == base
    lookup = await backend.store.get([KEY, other.key])
    assert sorted(entity.properties["n"] for entity in lookup.found) == [1, 2]  # type: ignore[type-var]  # both are int


async def test_a_key_written_twice_is_rejected(backend: SqliteBackend) -> None:
    with pytest.raises(Rejected, match="twice"):
        await backend.store.commit([Upsert(_entity(n=1)), Delete(key=KEY)])


@pytest.mark.parametrize("past", [0, 1])
async def test_a_lookup_names_at_most_so_many_keys(backend: SqliteBackend, past: int) -> None:
    keys: list[Key] = [(("P", number),) for number in range(1, int(LOOKUP_KEYS) + past + 1)]
    if not past:
        assert len((await backend.store.get(keys)).missing) == LOOKUP_KEYS
        return
    with pytest.raises(Rejected, match="a lookup of 1001 keys, the limit is 1000"):
        await backend.store.get(keys)


async def test_a_commit_is_at_most_as_large_as_a_request(backend: SqliteBackend) -> None:
    large = [Upsert(Entity(key=(("P", number),), properties={"b": bytes(1_000_000)})) for number in range(1, 11)]
    await backend.store.commit(large)
    with pytest.raises(Rejected, match=f"the limit is {REQUEST_BYTES}"):
        await backend.store.commit([*large, Upsert(Entity(key=KEY, properties={"b": bytes(500_000)}))])
    assert await _one(backend) is None


async def test_queries_see_only_indexed_properties(backend: SqliteBackend) -> None:
    await backend.store.commit(
        [
            Insert(Entity(key=(("P", "seen"),), properties={"n": 1}, indexed=frozenset({"n"}))),
            Insert(Entity(key=(("P", "unseen"),), properties={"n": 1})),
        ]
    )
    assert await _names(backend, Query(kind="P", filters=(Filter("n", "=", 1),))) == ["seen"]
    assert await _names(backend, Query(kind="P", order=("n",))) == ["seen"]
    assert await _names(backend, Query(kind="P")) == ["seen", "unseen"]


async def test_an_index_follows_updates_and_deletes(backend: SqliteBackend) -> None:
    for write in (Insert(_entity(n=1)), Upsert(_entity(n=2)), Upsert(_entity(m=1)), Delete(key=KEY)):
        await backend.store.commit([write])
        found = {name: await _names(backend, Query(kind="P", filters=(Filter(name, ">=", 0),))) for name in ("n", "m")}
        properties = {} if isinstance(write, Delete) else write.entity.properties
        assert found == {"n": ["a"] if "n" in properties else [], "m": ["a"] if "m" in properties else []}
    assert await _names(backend, Query(kind="P", filters=(Filter("n", "=", 1),))) == []


TIME = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (Query(kind="T"), [1, 2, 3, 4]),
        (Query(kind="T", order=("-eta",)), [4, 2, 3, 1]),
        (Query(kind="T", order=("eta", "-n")), [1, 3, 2, 4]),
        (Query(kind="T", filters=(Filter("eta", "<=", 20),)), [1, 2, 3]),
        (Query(kind="T", filters=(Filter("eta", ">", 10), Filter("eta", "<", 30))), [2, 3]),
        (Query(kind="T", filters=(Filter("tags", "=", "b"),)), [1, 3]),
        (Query(kind="T", filters=(Filter("tags", "=", "b"), Filter("tags", "=", "c"))), [3]),
        (Query(kind="T", filters=(Filter("tags", "=", "b"), Filter("eta", ">", 10))), [3]),
        (Query(kind="T", order=("tags",)), [1, 3, 2]),
        (Query(kind="T", order=("-tags",)), [2, 3, 1]),
        (Query(kind="T", filters=(Filter("eta", ">", TIME),)), []),
        (Query(kind="T", filters=(Filter("eta", ">", None),)), [1, 2, 3, 4]),
    ],
)
async def test_a_query_filters_and_orders_by_its_index(backend: SqliteBackend, query: Query, names: list[int]) -> None:
    rows: list[tuple[int, int, int, tuple[str, ...]]] = [
        (1, 10, 1, ("a", "b")),
        (2, 20, 1, ("d",)),
        (3, 20, 2, ("c", "b")),
        (4, 30, 1, ()),
    ]
    await backend.store.commit(
        [Insert(_entity((("T", place),), eta=eta, n=n, tags=tags)) for place, eta, n, tags in rows]
    )
    assert await _names(backend, query) == names


async def test_an_ancestor_bounds_a_query_to_its_own_family(backend: SqliteBackend) -> None:
    keys: list[Key] = [
        (("S", "p:1"),),
        (("S", "p:1"), ("G", 1)),
        (("S", "p:1"), ("G", 2)),
        (("S", "p:10"), ("G", 3)),
        (("S", "p:1"), ("H", 4)),
    ]
    await backend.store.commit([Insert(_entity(key, n=1)) for key in keys])
    assert await _names(backend, Query(kind="G", ancestor=(("S", "p:1"),))) == [1, 2]
    assert await _names(backend, Query(kind="G", ancestor=(("S", "p:1"),), order=("n",))) == [1, 2]


@pytest.mark.parametrize("order", [(), ("n",), ("-n",), ("n", "-m"), ("-m", "n")])
async def test_pages_follow_each_other_without_gap_or_overlap(backend: SqliteBackend, order: tuple[str, ...]) -> None:
    await backend.store.commit([Insert(_entity((("T", i),), n=i % 3, m=i % 2)) for i in range(1, 12)])
    whole = await _names(backend, Query(kind="T", order=order))
    assert len(whole) == 11
    paged: list[int | str] = []
    cursor: bytes | None = None
    while True:
        page = await backend.store.query(Query(kind="T", order=order, limit=4, cursor=cursor, keys_only=True))
        paged += [entity.key[-1][1] for entity in page.entities]
        assert all(not entity.properties for entity in page.entities)
        if (cursor := page.cursor) is None:
            break
    assert paged == whole


async def test_a_cursor_of_another_query_is_rejected(backend: SqliteBackend) -> None:
    await backend.store.commit([Insert(_entity((("T", i),), n=i)) for i in (1, 2, 3)])
    cursor = (await backend.store.query(Query(kind="T", limit=1))).cursor
    for bad in (cursor, b"nonsense"):
        with pytest.raises(Rejected, match="cursor"):
            await backend.store.query(Query(kind="T", order=("n",), cursor=bad))


async def test_ranges_over_two_properties_are_rejected_as_datastore_does(backend: SqliteBackend) -> None:
    with pytest.raises(Rejected, match="one property"):
        await backend.store.query(Query(kind="T", filters=(Filter("a", ">", 1), Filter("b", ">", 1))))
    with pytest.raises(Rejected, match="begin with"):
        await backend.store.query(Query(kind="T", filters=(Filter("a", ">", 1),), order=("b",)))
