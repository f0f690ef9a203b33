from datetime import UTC, datetime

import pytest

from tally import limits
from tally.errors import Refused, Rejected, Unavailable
from tally.ports import (
    Delete,
    Entity,
    Filter,
    Insert,
    Key,
    OnConflict,
    Query,
    Update,
    Upsert,
    Value,
    Write,
)
from tally.testing.store import FakeStore, Flavour

A: Key = (("Shard", "a"),)
B: Key = (("Shard", "a"), ("Segment", 1))


def entity(key: Key = A, **properties: Value) -> Entity:
    return Entity(key=key, properties=properties, indexed=frozenset(name for name in properties if name != "data"))


async def version(store: FakeStore, key: Key) -> int:
    return (await store.get([key])).found[0].version


async def test_versions_are_never_used_twice() -> None:
    store = FakeStore()
    first = (await store.commit([Insert(entity(n=1))])).versions[0]
    await store.commit([Delete(key=A)])
    second = (await store.commit([Insert(entity(n=1))])).versions[0]
    assert first < second == await version(store, A)


async def refused(store: FakeStore, *writes: Write) -> str:
    with pytest.raises(Refused) as refusal:
        await store.commit(writes)
    return refusal.value.status


async def test_a_refused_commit_writes_nothing() -> None:
    store = FakeStore()
    await store.commit([Insert(entity(n=1))])
    stale = Update(entity=entity(n=2), base_version=99, on_conflict=OnConflict.FAIL)
    assert await refused(store, Insert(entity(B, n=1)), stale) == "FAILED_PRECONDITION"
    assert await refused(store, Upsert(entity(B, n=1)), Insert(entity())) == "ALREADY_EXISTS"
    assert await refused(store, Upsert(entity(B, n=1)), Delete(key=A, base_version=99)) == "FAILED_PRECONDITION"
    assert (await store.get([A, B])).missing == (B,)


@pytest.mark.parametrize(("flavour", "kept"), [("datastore", 1), ("firestore", 2)])
async def test_a_stale_update_that_may_pass_corrupts_in_the_emulators_two_ways(flavour: Flavour, kept: int) -> None:
    store = FakeStore(flavour=flavour)
    await store.commit([Insert(entity(n=1))])
    stale = Update(entity=entity(n=2), base_version=99, on_conflict=OnConflict.KEEP_STORED)
    answer = await store.commit([stale, Insert(entity(B, n=1))])
    assert answer.conflict_detected == (flavour == "datastore")
    found = (await store.get([A, B])).found
    assert [each.properties["n"] for each in found] == [kept, 1]


@pytest.mark.parametrize(("flavour", "status"), [("datastore", "NOT_FOUND"), ("firestore", "FAILED_PRECONDITION")])
async def test_an_update_of_nothing_is_refused(flavour: Flavour, status: str) -> None:
    write = Update(entity=entity(n=1), base_version=1, on_conflict=OnConflict.FAIL)
    assert await refused(FakeStore(flavour=flavour), write) == status


@pytest.mark.parametrize(
    "bad",
    [
        Upsert(entity((("K", ""),))),
        Upsert(entity((("K", 0),))),
        Upsert(entity((("K", "__x__"),))),
        Upsert(entity((("K", "x" * 1_501),))),
        Upsert(entity(name="x" * 1_501)),
        Upsert(entity(data=b"x" * 1_048_488)),
        Upsert(entity(at=datetime(2026, 1, 1))),  # noqa: DTZ001  # naive on purpose
    ],
)
async def test_the_services_limits_hold(bad: Write) -> None:
    with pytest.raises(Rejected):
        await FakeStore().commit([bad])


async def test_one_key_twice_is_rejected() -> None:
    with pytest.raises(Rejected):
        await FakeStore().commit([Upsert(entity(n=1)), Delete(key=A)])


async def names(store: FakeStore, query: Query) -> list[int | str]:
    """Page through a query two by two."""
    seen: list[int | str] = []
    while True:
        page = await store.query(query)
        seen += [each.key[-1][1] for each in page.entities]
        if page.cursor is None:
            return seen
        query = Query(
            kind=query.kind,
            ancestor=query.ancestor,
            filters=query.filters,
            order=query.order,
            limit=query.limit,
            cursor=page.cursor,
        )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(kind="T", limit=2), ["a", "b", "c", "d"]),
        (Query(kind="T", limit=2, order=("-n",)), ["c", "a", "d", "b"]),
        (Query(kind="T", limit=2, filters=(Filter("n", ">", 1),)), ["d", "a", "c"]),
        (Query(kind="T", limit=2, filters=(Filter("tag", "=", "x"),), order=("n",)), ["b", "c"]),
        (Query(kind="T", limit=2, filters=(Filter("data", "=", b"1"),)), []),
        (Query(kind="T", limit=2, ancestor=(("T", "a"),)), ["a"]),
        (Query(kind="T", limit=2, filters=(Filter("at", "<=", datetime(2026, 1, 2, tzinfo=UTC)),)), ["a"]),
    ],
)
async def test_queries_see_indexed_properties_in_order(query: Query, expected: list[str]) -> None:
    store = FakeStore()
    rows: dict[str, dict[str, Value]] = {
        "a": {"n": 3, "tag": "y", "at": datetime(2026, 1, 2, tzinfo=UTC)},
        "b": {"n": 1, "tag": ["x", "y"]},
        "c": {"n": 4, "tag": "x", "at": datetime(2026, 1, 3, tzinfo=UTC)},
        "d": {"n": 2, "data": b"1"},
    }
    await store.commit([Upsert(entity((("T", name),), **row)) for name, row in rows.items()])
    await store.commit([Upsert(entity((("Other", "z"),), n=1))])
    assert await names(store, query) == expected


async def test_an_answer_that_no_channel_takes_is_an_outage() -> None:
    store = FakeStore()
    made = [
        Entity(key=(("Large", number),), properties={"data": b"x" * 1_048_000})
        for number in range(1, limits.LARGE_ENTITIES + 3)
    ]
    for each in made:
        await store.commit([Insert(each)])
    few, many = limits.LARGE_ENTITIES, limits.LARGE_ENTITIES + 2
    assert len((await store.query(Query(kind="Large", limit=few))).entities) == few
    assert len((await store.get([each.key for each in made[:few]])).found) == few
    with pytest.raises(Unavailable):
        await store.query(Query(kind="Large", limit=many))
    with pytest.raises(Unavailable):
        await store.get([each.key for each in made[:many]])
