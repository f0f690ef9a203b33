from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.embedded.encoding import (
    ENTITY_BYTES,
    UNINDEXED_BYTES,
    decode_entity,
    decode_key,
    encode_entity,
    encode_key,
    encode_value,
)
from tally.errors import Rejected
from tally.ports import Entity, Key, Value

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(lambda t: "__" not in t)
KEYS = st.lists(st.tuples(NAMES, st.integers(1, 2**63 - 1) | NAMES), min_size=1, max_size=3).map(tuple)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@given(KEYS, KEYS)
def test_keys_come_back_and_sort_by_element_with_ids_before_names(one: Key, other: Key) -> None:
    def rank(key: Key) -> list[tuple[bytes, bool, int, bytes]]:
        parts = (
            (k, isinstance(n, str), n if isinstance(n, int) else 0, n if isinstance(n, str) else "") for k, n in key
        )
        return [(kind.encode(), named, number, name.encode()) for kind, named, number, name in parts]

    assert decode_key(encode_key(one)) == one
    assert (encode_key(one) < encode_key(other)) == (rank(one) < rank(other))


def test_a_child_sorts_within_its_parent_s_range() -> None:
    parent, child, neighbour = (("P", "a"),), (("P", "a"), ("C", 1)), (("P", "a\x00"),)
    low = encode_key(parent)
    assert low < encode_key(child) < low + b"\xff"
    assert not low <= encode_key(neighbour) < low + b"\xff"


def test_values_sort_by_type_then_size() -> None:
    values: list[Value] = [
        None,
        -(2**63),
        -1,
        0,
        2**63 - 1,
        NOON - timedelta(microseconds=1),
        NOON,
        False,
        True,
        b"",
        b"a",
        b"a\x00",
        "",
        "a",
        "b",
        float("-inf"),
        -1.5,
        0.0,
        1e-300,
        2.0,
    ]
    encoded = [encode_value(value) for value in values]
    assert encoded == sorted(encoded)
    assert len(set(encoded)) == len(encoded)
    assert encode_value(-0.0) == encode_value(0.0)


def test_an_entity_comes_back_with_lists_as_tuples_and_times_in_utc() -> None:
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    entity = Entity(
        key=(("P", "a"), ("C", 7)),
        properties={"n": None, "i": -5, "f": 0.5, "s": "é", "b": b"\x00", "l": ["x"], "t": tokyo, "y": True},
        indexed=frozenset({"i", "l", "absent"}),
    )
    row = encode_entity(entity)
    again = decode_entity(row.key, 9, row.body)
    assert again.properties == {**entity.properties, "l": ("x",), "t": NOON}
    assert cast(datetime, again.properties["t"]).utcoffset() == timedelta()
    assert (again.key, again.version) == (entity.key, 9)
    assert again.indexed == {"i", "l"}
    assert row.properties == {("i", encode_value(-5)), ("l", encode_value("x"))}


@pytest.mark.parametrize(
    "key",
    [
        (),
        (("", "a"),),
        (("P", ""),),
        (("P", 0),),
        (("P", -1),),
        (("P", 2**63),),
        (("P", True),),
        (("P", 1.5),),
        (("P", "__x__"),),
        (("__P__", "a"),),
        (("P", "a" * 1_501),),
        (("P", "\ud800"),),
    ],
)
def test_a_key_that_the_service_refuses_is_rejected(key: Any) -> None:
    with pytest.raises(Rejected):
        encode_key(key)


@pytest.mark.parametrize("name", ["__", "____", "__x", " ", "a" * 1_500, "\x00"])
def test_a_key_name_that_the_service_takes_is_taken(name: str) -> None:
    assert decode_key(encode_key((("P", name),))) == (("P", name),)


@pytest.mark.parametrize(
    "properties",
    [
        {"a": object()},
        {"a": {"b": 1}},
        {"a": 2**63},
        {"a": -(2**63) - 1},
        {"a": datetime(2026, 1, 1)},  # noqa: DTZ001  # the value under test
        {"a": "\ud800"},
        {"a": ["\udfff"]},
        {"a": ["x", 1]},
        {"": 1},
        {"__a__": 1},
        {"i": "x" * 1_501},
        {"i": b"x" * 1_501},
        {"i": ["x" * 1_501]},
        {"i": "😀" * 376},
        {"a": b"x" * (UNINDEXED_BYTES + 1)},
        {"a": "é" * (UNINDEXED_BYTES // 2 + 1)},
    ],
)
def test_a_value_that_the_service_refuses_is_rejected_by_its_name(properties: Mapping[str, Any]) -> None:
    with pytest.raises(Rejected, match=f"property '{next(iter(properties))}'"):
        encode_entity(Entity(key=(("P", "a"),), properties=properties, indexed=frozenset({"i"})))


@pytest.mark.parametrize("value", ["x" * 5_000, b"x" * UNINDEXED_BYTES, "é" * (UNINDEXED_BYTES // 2)])
def test_a_value_over_the_index_s_limit_is_taken_when_unindexed(value: str | bytes) -> None:
    encode_entity(Entity(key=(("P", "a"),), properties={"a": value}))


@pytest.mark.parametrize("past", [0, 1])
def test_an_entity_has_at_most_so_many_bytes(past: int) -> None:
    def entity(size: int) -> Entity:
        return Entity(key=(("P", "a"),), properties={"a": b"x" * 600_000, "b": b"x" * size})

    row = encode_entity(entity(400_000))
    size = 400_000 + ENTITY_BYTES - len(row.key) - len(row.body) + past
    if not past:
        assert len(row.key) + len(encode_entity(entity(size)).body) == ENTITY_BYTES
        return
    with pytest.raises(Rejected, match=f"has {ENTITY_BYTES + 1} bytes"):
        encode_entity(entity(size))
