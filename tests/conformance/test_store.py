"""What every Store does. Differences of the emulators that the port allows are named where a test is tolerant."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import pytest

from tally import ports
from tally.errors import BackendError, Refused, Rejected
from tally.ports import Delete, Entity, Insert, Key, OnConflict, Store, Update, Upsert, Value, Write


def key(name: str | int = "a", kind: str = "Thing") -> Key:
    return ((kind, name),)


def entity(at: Key, **properties: Value) -> Entity:
    return Entity(key=at, properties=properties)


def update(at: Key, base_version: int, **properties: Value) -> Update:
    return Update(entity=entity(at, **properties), base_version=base_version, on_conflict=OnConflict.FAIL)


async def one(store: Store, at: Key) -> Entity | None:
    found, _ = await ports.read(store, [at])
    return found.get(at)


async def stored(store: Store, at: Key) -> dict[str, Value] | None:
    there = await one(store, at)
    return None if there is None else dict(there.properties)


async def insert(store: Store, at: Key, **properties: Value) -> int:
    """Insert an entity and return its version."""
    (version,) = (await store.commit([Insert(entity(at, **properties))])).versions
    return version


async def test_a_lookup_tells_what_is_there_from_what_is_missing(store: Store) -> None:
    await store.commit([Insert(entity(key("a"), n=1)), Insert(entity(key("b"), n=2))])
    answer = await store.get([key("a"), key("none"), key("b")])
    assert answer.deferred == ()
    assert answer.missing == (key("none"),)
    assert {each.key: dict(each.properties) for each in answer.found} == {key("a"): {"n": 1}, key("b"): {"n": 2}}


async def test_reading_on_until_nothing_is_deferred_returns_each_key_once(store: Store) -> None:
    await store.commit([Insert(entity(key(number), n=number)) for number in range(1, 301)])
    found, _ = await ports.read(store, [key(number) for number in range(1, 401)])
    assert {at: each.properties["n"] for at, each in found.items()} == {key(n): n for n in range(1, 301)}


async def test_a_read_gives_the_version_that_the_commit_gave(store: Store) -> None:
    committed = await store.commit([Insert(entity(key("a"), n=1)), Insert(entity(key("b"), n=1))])
    assert not committed.conflict_detected
    assert all(version > 0 for version in committed.versions)
    for at, version in zip((key("a"), key("b")), committed.versions, strict=True):
        there = await one(store, at)
        assert there is not None
        assert there.version == version


async def test_each_write_raises_the_version(store: Store) -> None:
    versions = [await insert(store, key(), n=0)]
    for n in range(1, 5):
        versions += (await store.commit([update(key(), versions[-1], n=n)])).versions
    versions += (await store.commit([Upsert(entity(key(), n=9))])).versions
    assert versions == sorted(set(versions))


async def test_the_version_of_a_deleted_entity_does_not_come_back(store: Store) -> None:
    first = await insert(store, key(), n=1)
    await store.commit([Delete(key=key())])
    assert await insert(store, key(), n=1) > first


async def test_inserting_what_exists_is_refused_and_nothing_of_the_commit_is_written(store: Store) -> None:
    await insert(store, key("a"), n=1)
    with pytest.raises(Refused):
        await store.commit([Insert(entity(key("b"), n=2)), Insert(entity(key("a"), n=2))])
    assert await stored(store, key("a")) == {"n": 1}
    assert await one(store, key("b")) is None


async def test_a_stale_update_is_refused_and_neither_entity_is_written(store: Store) -> None:
    old = await insert(store, key("a"), n=1)
    (new,) = (await store.commit([update(key("a"), old, n=2)])).versions
    writes: Sequence[Sequence[Write]] = (
        [update(key("a"), old, n=3), Insert(entity(key("b"), n=3))],
        [Insert(entity(key("b"), n=3)), update(key("a"), old, n=3)],
    )
    for commit in writes:
        with pytest.raises(Refused):
            await store.commit(commit)
        there = await one(store, key("a"))
        assert there is not None
        assert (there.properties["n"], there.version) == (2, new)
        assert await one(store, key("b")) is None


async def test_updating_what_is_missing_is_refused(store: Store) -> None:
    for base in (1, 1_000_000):
        with pytest.raises(Refused):
            await store.commit([update(key("a"), base, n=1), Insert(entity(key("b")))])
    version = await insert(store, key("a"), n=1)
    await store.commit([Delete(key=key("a"))])
    with pytest.raises(Refused):
        await store.commit([update(key("a"), version, n=2)])
    assert await one(store, key("a")) is None
    assert await one(store, key("b")) is None


async def test_without_fail_a_stale_update_is_answered_ok_however_the_store_then_acts(store: Store) -> None:
    """One emulator keeps the stored entity and says so, the other overwrites it and says nothing: hence FAIL."""
    old = await insert(store, key(), n=1)
    await store.commit([update(key(), old, n=2)])
    stale = Update(entity=entity(key(), n=3), base_version=old, on_conflict=OnConflict.KEEP_STORED)
    committed = await store.commit([stale])
    assert await stored(store, key()) == {"n": 2 if committed.conflict_detected else 3}


async def test_of_twelve_updates_of_one_version_at_a_time_exactly_one_wins(store: Store) -> None:
    version = await insert(store, key(), n=-1)

    async def attempt(n: int) -> int | None:
        for _ in range(100):
            try:
                await store.commit([update(key(), version, n=n), Insert(entity((*key(), ("Part", n + 1))))])
            except Refused as error:
                if error.status != "ABORTED":  # contention: nothing was written, and it may be tried again
                    return None
            else:
                return n
        raise AssertionError("contention without an end")

    wins = [n for n in await asyncio.gather(*map(attempt, range(12))) if n is not None]
    assert len(wins) == 1
    assert await stored(store, key()) == {"n": wins[0]}
    parts, _ = await ports.read(store, [(*key(), ("Part", n + 1)) for n in range(12)])
    assert list(parts) == [(*key(), ("Part", wins[0] + 1))]


async def test_twelve_that_read_and_try_again_all_get_through(store: Store) -> None:
    await insert(store, key(), n=0)

    async def increment() -> None:
        while True:
            there = await one(store, key())
            assert there is not None
            n = there.properties["n"]
            assert isinstance(n, int)
            try:
                await store.commit([update(key(), there.version, n=n + 1)])
            except Refused:
                continue
            return

    async with asyncio.timeout(30):
        await asyncio.gather(*(increment() for _ in range(12)))
    assert await stored(store, key()) == {"n": 12}


async def test_a_delete_with_a_version_needs_that_version(store: Store) -> None:
    old = await insert(store, key(), n=1)
    (new,) = (await store.commit([update(key(), old, n=2)])).versions
    with pytest.raises(Refused):
        await store.commit([Delete(key=key(), base_version=old)])
    assert await stored(store, key()) == {"n": 2}
    await store.commit([Delete(key=key(), base_version=new)])
    assert await one(store, key()) is None
    with pytest.raises(Refused):
        await store.commit([Delete(key=key(), base_version=new)])


async def test_a_delete_without_a_version_takes_whatever_is_there_or_is_not(store: Store) -> None:
    await insert(store, key("a"))
    await store.commit([Delete(key=key("a")), Delete(key=key("none"))])
    assert await one(store, key("a")) is None


async def test_an_upsert_writes_whatever_is_there(store: Store) -> None:
    await store.commit([Upsert(entity(key(), n=1, gone=True))])
    await store.commit([Upsert(entity(key(), n=2))])
    assert await stored(store, key()) == {"n": 2}


async def test_a_commit_of_many_entities_is_whole_or_nothing(store: Store) -> None:
    many = [Insert(entity(key(number), n=number)) for number in range(1, 301)]
    await insert(store, key(300), n=0)
    with pytest.raises(Refused):
        await store.commit(many)
    assert list((await ports.read(store, [key(number) for number in range(1, 301)]))[0]) == [key(300)]
    await store.commit([Delete(key=key(300))])
    committed = await store.commit(many)
    assert len(committed.versions) == 300
    assert len((await ports.read(store, [key(number) for number in range(1, 301)]))[0]) == 300


async def test_a_commit_may_hold_five_hundred_writes_of_unrelated_keys(store: Store) -> None:
    name = uuid4().hex
    await store.commit([Upsert(entity(key(f"{name}-{number}"))) for number in range(500)])
    found, _ = await ports.read(store, [key(f"{name}-{number}") for number in range(500)])
    assert len(found) == 500


async def test_a_write_that_can_never_succeed_takes_the_first_put_with_it(store: Store) -> None:
    with pytest.raises(Rejected):
        await store.commit([Insert(entity(key("a"), n=1)), Insert(entity(key("b"), data=bytes(1_100_000)))])
    assert await one(store, key("a")) is None


async def test_one_key_twice_in_a_commit_is_rejected(store: Store) -> None:
    with pytest.raises(Rejected):
        await store.commit([Upsert(entity(key(), n=1)), Delete(key=key())])
    assert await one(store, key()) is None


@pytest.mark.parametrize("name", ["", "__x__", "__key__", 0, "n" * 1_501], ids=repr)
async def test_a_key_that_the_service_reserves_or_refuses_is_rejected(store: Store, name: str | int) -> None:
    with pytest.raises(Rejected):
        await store.commit([Upsert(entity(key(name)))])


@pytest.mark.parametrize(
    "name",
    ["__", "a:1", "!probe:0", "../a/b", "a%2Fb", " ", "é" * 750, "名前", "\N{GRINNING FACE}", 1, 2**53, 2**63 - 1],
    ids=ascii,
)
async def test_a_key_keeps_its_names_and_ids(store: Store, name: str | int) -> None:
    at = (("Shard", name), ("Segment", 7), ("Leaf", "x"))
    await insert(store, at, n=1)
    answer = await store.get([at, (("Shard", name),)])
    assert [each.key for each in answer.found] == [at]
    assert answer.missing == ((("Shard", name),),)


async def test_an_id_is_no_name(store: Store) -> None:
    await store.commit([Insert(entity(key(1), n=1)), Insert(entity(key("1"), n=2))])
    assert await stored(store, key(1)) == {"n": 1}
    assert await stored(store, key("1")) == {"n": 2}


async def test_an_error_of_the_store_names_its_status(store: Store) -> None:
    await insert(store, key())
    with pytest.raises(BackendError) as caught:
        await store.commit([Insert(entity(key()))])
    assert caught.value.status == "ALREADY_EXISTS"
