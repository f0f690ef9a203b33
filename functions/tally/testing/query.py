"""Queries over entities in memory, by the rules of Datastore: only indexed properties are seen; types have an order."""

import functools
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from tally.errors import Rejected
from tally.ports import Entity, Filter, Key, Page, Query, Value

# A place in the answer: the values of the ordering properties, then the key; what a cursor holds.
_Place: TypeAlias = tuple[list[Any], list[Any]]


def answer(query: Query, entities: Iterable[Entity]) -> Page:
    """Return the page of the entities of the query's kind that it asks for."""
    order = _order(query)
    compare = functools.cmp_to_key(functools.partial(_compare, [name.startswith("-") for name in order]))
    names = [name.removeprefix("-") for name in order]
    after = None if query.cursor is None else compare(_read(query.cursor))
    hits = []
    for entity in entities:
        if _matches(query, names, entity):
            place = compare(_place(names, entity))
            if after is None or after < place:
                hits.append((place, entity))
    hits.sort(key=lambda hit: hit[0])
    page = [entity for _, entity in hits[: query.limit]]
    more = len(hits) > len(page) and bool(page)
    cursor = msgspec.msgpack.encode(_place(names, page[-1])) if more else None
    return Page(entities=tuple(_bare(entity) if query.keys_only else entity for entity in page), cursor=cursor)


def _read(cursor: bytes) -> _Place:
    try:
        return msgspec.msgpack.decode(cursor, type=tuple[list[Any], list[Any]])
    except msgspec.DecodeError as error:
        raise Rejected("the cursor is not of this query", status="INVALID_ARGUMENT") from error


def _order(query: Query) -> tuple[str, ...]:
    """An inequality orders by its property first, as in Datastore."""
    unequal = {each.property for each in query.filters if each.op != "="}
    if len(unequal) > 1:
        raise Rejected(f"inequalities on {sorted(unequal)}: one property at most", status="INVALID_ARGUMENT")
    if unequal and not query.order:
        return tuple(unequal)
    if unequal and query.order[0].removeprefix("-") not in unequal:
        raise Rejected(f"order must begin with {unequal.pop()!r}", status="INVALID_ARGUMENT")
    return query.order


def _matches(query: Query, ordered: Sequence[str], entity: Entity) -> bool:
    if query.ancestor is not None and entity.key[: len(query.ancestor)] != query.ancestor:
        return False
    return all(name in entity.indexed for name in ordered) and all(_holds(each, entity) for each in query.filters)


def _holds(condition: Filter, entity: Entity) -> bool:
    if condition.property not in entity.indexed:
        return False
    return any(_true(condition.op, value, condition.value) for value in _values(entity.properties[condition.property]))


def _true(op: str, value: Value, bound: Value) -> bool:
    left, right = _rank(value), _rank(bound)
    if op == "=":
        return left == right
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]


def _values(value: Value) -> Sequence[Value]:
    return value if isinstance(value, list | tuple) else (value,)


def _rank(value: Value) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 3, value
    for rank, kind in ((1, int), (2, datetime), (4, bytes), (5, str), (6, float)):
        if isinstance(value, kind):
            return rank, value
    raise Rejected(f"a query cannot compare {value!r}", status="INVALID_ARGUMENT")


def _place(names: Sequence[str], entity: Entity) -> _Place:
    values = []
    for name in names:
        each = _values(entity.properties[name])
        values.append(min(each, key=_rank) if len(each) != 1 else each[0])
    return values, _flat(entity.key)


def _flat(key: Key) -> list[Any]:
    return [part for element in key for part in element]


def _compare(descending: Sequence[bool], left: _Place, right: _Place) -> int:
    for down, a, b in zip(descending, left[0], right[0], strict=True):
        if (first := _rank(a)) != (second := _rank(b)):
            return -1 if (first < second) != down else 1
    mine, other = ([_rank(part) for part in place[1]] for place in (left, right))
    return (mine > other) - (mine < other)


def _bare(entity: Entity) -> Entity:
    return Entity(key=entity.key, properties={}, version=entity.version)
