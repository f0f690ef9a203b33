"""What a Store keeps of the values that it is given."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tally.errors import Rejected
from tally.ports import Entity, Insert, Store, Value

KEY = (("Thing", "a"),)
VALUES: dict[str, Value] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "least-integer": -(2**63),
    "greatest-integer": 2**63 - 1,
    "beyond-doubles": 2**53 + 1,
    "float": -0.1,
    "whole-float": 3.0,
    "empty-text": "",
    "text": "naïve \N{GRINNING FACE} \x00 e\u0301 名",
    "long-text": "x" * 200_000,
    "empty-bytes": b"",
    "bytes": bytes(range(256)) * 4,
    "list": ("b", "a", "b", ""),
    "empty-list": (),
    "one-item": ("only",),
    "epoch": datetime(1970, 1, 1, tzinfo=UTC),
    "microseconds": datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC),
    "before-1970": datetime(1931, 5, 6, 7, 8, 9, 10, tzinfo=UTC),
    "far": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
}


async def read_back(store: Store, properties: dict[str, Value], indexed: frozenset[str] = frozenset()) -> Entity:
    await store.commit([Insert(Entity(key=KEY, properties=properties, indexed=indexed))])
    (found,) = (await store.get([KEY])).found
    return found


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_comes_back_as_it_was(store: Store, name: str) -> None:
    value = VALUES[name]
    found = await read_back(store, {"value": value})
    assert (type(found.properties["value"]), found.properties["value"]) == (type(value), value)


async def test_many_values_keep_their_names_and_what_is_indexed(store: Store) -> None:
    properties = {name: value for name, value in VALUES.items() if name != "long-text"}
    indexed = frozenset(name for name in properties if name not in ("empty-list", "bytes", "text"))
    found = await read_back(store, properties, indexed)
    assert dict(found.properties) == properties
    assert found.indexed == indexed


async def test_a_list_of_texts_may_be_given_as_a_list(store: Store) -> None:
    found = await read_back(store, {"value": ["a", "b"]})
    assert found.properties["value"] == ("a", "b")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
async def test_an_instant_is_the_same_whatever_the_time_zone_of_the_machine(
    store: Store, zone: str, monkeypatch: pytest.MonkeyPatch, restored_zone: None
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    instant = datetime(2026, 3, 8, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    value = (await read_back(store, {"at": instant})).properties["at"]
    assert isinstance(value, datetime)
    assert value == instant
    assert value.utcoffset() == timedelta(0)
    assert value > datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def restored_zone() -> Iterator[None]:
    """Read the zone again after `monkeypatch` has put it back."""
    yield
    time.tzset()


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1), 2**63, -(2**63) - 1, "\ud800"],  # noqa: DTZ001  # a naive one is the case
    ids=["naive-datetime", "too-great", "too-small", "lone-surrogate"],
)
async def test_a_value_that_cannot_be_kept_is_rejected(store: Store, value: Value) -> None:
    with pytest.raises(Rejected, match="value"):
        await read_back(store, {"value": value})
    assert (await store.get([KEY])).missing == (KEY,)


@pytest.mark.parametrize("text", ["x" * 1_501, "\N{GRINNING FACE}" * 376], ids=["ascii", "emoji"])
async def test_a_text_over_1500_bytes_is_kept_unindexed_and_rejected_indexed(store: Store, text: str) -> None:
    with pytest.raises(Rejected):
        await read_back(store, {"text": text}, frozenset({"text"}))
    assert (await read_back(store, {"text": text})).properties["text"] == text


@pytest.mark.parametrize("size", [900_000, 1_048_000])
async def test_an_entity_may_be_large(store: Store, size: int) -> None:
    records = bytes(range(250)) * (size // 250)
    assert (await read_back(store, {"records": records})).properties["records"] == records


async def test_three_large_entities_fit_in_one_commit_and_one_lookup(store: Store) -> None:
    keys = [(("Shard", "a"), ("Segment", number)) for number in (1, 2, 3)]
    records = bytes(900_000)
    await store.commit([Insert(Entity(key=key, properties={"records": records})) for key in keys])
    answer = await store.get(keys)
    assert [len(bytes(each.properties["records"])) for each in answer.found] == [900_000] * 3  # type: ignore[arg-type]  # bytes
