"""A query as one SQL statement. Like Datastore, it sees only indexed properties and walks an index in its order."""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tally.embedded.encoding import encode_key, encode_value
from tally.errors import Rejected
from tally.ports import Filter, Query

_OPERATORS = ("=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """`sql` yields key, version, body, then a value an order, and one row more than the limit if there is more."""

    sql: str
    arguments: tuple[object, ...]


class _Order(NamedTuple):
    property: str
    descending: bool


class _Sql:
    """Text and its arguments, grown side by side."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.arguments: list[object] = []

    def add(self, text: str, *arguments: object) -> None:
        self.parts.append(text)
        self.arguments += arguments


def build(query: Query) -> Statement:
    """Return the statement of a query. Raises Rejected for one that the service would refuse."""
    orders = _orders(query)
    sql = _Sql()
    columns = "".join(f", o{number}.value" for number in range(len(orders)))
    sql.add(f"SELECT e.key, e.version, e.body{columns}")
    _sources(sql, query, orders)
    _conditions(sql, query, orders)
    if query.cursor is not None:
        _after(sql, query, query.cursor, orders)
    terms = [f"o{number}.value{' DESC' if order.descending else ''}" for number, order in enumerate(orders)]
    sql.add(f"ORDER BY {', '.join([*terms, _key_column(query, orders)])} LIMIT ?", query.limit + 1)
    return Statement(sql=" ".join(sql.parts), arguments=tuple(sql.arguments))


def cursor_of(key: bytes, values: tuple[bytes, ...]) -> bytes:
    """Return the cursor that goes on after a row."""
    return msgspec.msgpack.encode([*values, key])


def _orders(query: Query) -> list[_Order]:
    """Return the orders asked for; without any, a range orders by its property, as an index is walked."""
    for condition in query.filters:
        if condition.op not in _OPERATORS:
            raise Rejected(f"no such comparison: {condition.op!r}", status="INVALID_ARGUMENT")
    ranges = {condition.property for condition in query.filters if condition.op != "="}
    names = query.order or tuple(ranges)
    if len(ranges) > 1:
        raise Rejected(f"inequalities on {sorted(ranges)}: one property at most", status="INVALID_ARGUMENT")
    if ranges and names[0].removeprefix("-") not in ranges:
        raise Rejected(f"the order must begin with {ranges.pop()!r}", status="INVALID_ARGUMENT")
    return [_Order(name.removeprefix("-"), name.startswith("-")) for name in names]


def _sources(sql: _Sql, query: Query, orders: list[_Order]) -> None:
    """Name the tables; CROSS JOIN keeps SQLite to this order: the walk of the first index may stop at the limit."""
    if not orders and not _equals(query):
        sql.add("FROM entity e WHERE e.kind = ?", query.kind)
        return
    if not orders:
        first = _equals(query)[0]
        sql.add("FROM property o0 CROSS JOIN entity e ON e.key = o0.key WHERE o0.kind = ? AND o0.name = ?", query.kind)
        sql.add("AND o0.value = ?", first.property, encode_value(first.value))
        return
    sql.add("FROM property o0")
    for number, order in enumerate(orders[1:], 1):
        sql.add(
            f"CROSS JOIN property o{number} ON o{number}.key = o0.key AND o{number}.kind = o0.kind "
            f"AND o{number}.name = ?",
            order.property,
        )
        _range(sql, f"o{number}", _ranges(query, order.property))
        _first_of_key(sql, query, order, f"o{number}")
    sql.add("CROSS JOIN entity e ON e.key = o0.key WHERE o0.kind = ? AND o0.name = ?", query.kind, orders[0].property)
    _range(sql, "o0", _ranges(query, orders[0].property))
    _first_of_key(sql, query, orders[0], "o0")


def _conditions(sql: _Sql, query: Query, orders: list[_Order]) -> None:
    if query.ancestor is not None:
        key = encode_key(query.ancestor)
        column = _key_column(query, orders)
        sql.add(f"AND {column} >= ? AND {column} < ?", key, key + b"\xff")
    for condition in _equals(query):
        sql.add(
            "AND EXISTS (SELECT 1 FROM property p WHERE p.kind = ? AND p.name = ? AND p.value = ? AND p.key = e.key)",
            query.kind,
            condition.property,
            encode_value(condition.value),
        )


def _equals(query: Query) -> list[Filter]:
    return [condition for condition in query.filters if condition.op == "="]


def _ranges(query: Query, name: str) -> list[Filter]:
    return [condition for condition in query.filters if condition.property == name and condition.op != "="]


def _range(sql: _Sql, table: str, ranges: list[Filter]) -> None:
    """Compare with the bounds, across types as the index goes."""
    for condition in ranges:
        sql.add(f"AND {table}.value {condition.op} ?", encode_value(condition.value))


def _first_of_key(sql: _Sql, query: Query, order: _Order, table: str) -> None:
    """Let an entity with a list appear once, at the first of its values that the walk meets."""
    sooner = ">" if order.descending else "<"
    sql.add(
        f"AND NOT EXISTS (SELECT 1 FROM property q WHERE q.key = {table}.key AND q.name = {table}.name "
        f"AND q.value {sooner} {table}.value"
    )
    _range(sql, "q", _ranges(query, order.property))
    sql.add(")")


def _key_column(query: Query, orders: list[_Order]) -> str:
    return "o0.key" if orders or _equals(query) else "e.key"


def _after(sql: _Sql, query: Query, cursor: bytes, orders: list[_Order]) -> None:
    """Continue after the cursor: (a, b, key) beyond it, spelled out, as directions may differ."""
    try:
        values = msgspec.msgpack.decode(cursor, type=list[bytes])
    except msgspec.DecodeError:
        values = []
    if len(values) != len(orders) + 1:
        raise Rejected("the cursor is not of this query", status="INVALID_ARGUMENT")
    columns = [*(f"o{number}.value" for number in range(len(orders))), _key_column(query, orders)]
    descending = [*(order.descending for order in orders), False]
    terms = []
    arguments: list[object] = []
    for place, column in enumerate(columns):
        equal = [f"{before} = ?" for before in columns[:place]]
        terms.append("(" + " AND ".join([*equal, f"{column} {'<' if descending[place] else '>'} ?"]) + ")")
        arguments += values[: place + 1]
    sql.add(f"AND ({' OR '.join(terms)})", *arguments)
