"""Keys, values and entities as bytes. Keys and indexed values compare, as bytes, in the order that Datastore has.

What the service would refuse for its type, its name or its size is Rejected here too, so that nothing works on one
machine and fails in the cloud.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from tally.clock import from_datetime
from tally.errors import Rejected
from tally.ports import Entity, Key, Value

# The service's own limits.
INDEXED_BYTES = 1_500
UNINDEXED_BYTES = 1_048_487
ENTITY_BYTES = 1_048_572
REQUEST_BYTES = 10 * 1024 * 1024
_RESERVED = re.compile(r"__.+__", re.DOTALL)
_INT64 = 1 << 63
_ID, _NAME = b"\x01", b"\x02"
_FLIP = (1 << 64) - 1


class Row(NamedTuple):
    """An entity as it is stored; `properties` are the rows (name, value) of its index."""

    key: bytes
    kind: str
    body: bytes
    properties: frozenset[tuple[str, bytes]]


class _Body(msgspec.Struct, array_like=True):
    properties: dict[str, Value]
    indexed: list[str]


_encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder().decode


def encode_key(key: Key) -> bytes:
    """Return bytes that sort as the key does, a parent before its children. Raises Rejected."""
    if not key:
        raise Rejected("a key has no elements", status="INVALID_ARGUMENT")
    return b"".join(_element(kind, name, key) for kind, name in key)


def decode_key(data: bytes) -> Key:
    path: list[tuple[str, int | str]] = []
    while data:
        kind, data = _take(data)
        tag, data = data[:1], data[1:]
        if tag == _ID:
            path.append((kind, int.from_bytes(data[:8], "big")))
            data = data[8:]
        else:
            name, data = _take(data)
            path.append((kind, name))
    return tuple(path)


def encode_entity(entity: Entity) -> Row:
    """Return an entity's stored form. Raises Rejected for a key or a value that the service would refuse."""
    for name, value in entity.properties.items():
        _check_property(name, value)
    indexed = sorted(entity.indexed & entity.properties.keys())
    key, body = encode_key(entity.key), _encode_body((entity.properties, indexed))
    if len(key) + len(body) > ENTITY_BYTES:
        raise _rejected(entity.key, f"the entity has {len(key) + len(body)} bytes, the limit is {ENTITY_BYTES}")
    return Row(
        key,
        entity.key[-1][0],
        body,
        frozenset(_index_rows(entity.properties, indexed)),
    )


def decode_entity(key: bytes, version: int, body: bytes) -> Entity:
    properties, indexed = _decode_body(body)
    for name, value in properties.items():
        if isinstance(value, list):
            properties[name] = tuple(value)
        elif isinstance(value, datetime):
            properties[name] = value.astimezone(UTC)
    return Entity(key=decode_key(key), properties=properties, indexed=frozenset(indexed), version=version)


def indexed_rows(body: bytes) -> frozenset[tuple[str, bytes]]:
    """Return the rows of the index that belong to a stored entity."""
    return frozenset(_index_rows(*_decode_body(body)))


def encode_value(value: Value) -> bytes:
    """Return bytes that sort as the value does: null, integers, times, booleans, bytes, text, floats."""
    match value:
        case None:
            return b"\x05"
        case bool():
            return b"\x30" + bytes([value])
        case int():
            return b"\x10" + (value + _INT64).to_bytes(8, "big")
        case datetime():
            return b"\x20" + (from_datetime(value) + _INT64).to_bytes(8, "big")
        case bytes():
            return b"\x40" + value
        case str():
            return b"\x50" + value.encode()
        case float():
            bits = int.from_bytes(struct.pack(">d", value + 0.0), "big")
            return b"\x60" + ((bits ^ _FLIP) if bits >= _INT64 else bits | _INT64).to_bytes(8, "big")
    raise Rejected(f"a value of type {type(value).__name__} cannot be compared", status="INVALID_ARGUMENT")


def _element(kind: str, name: int | str, key: Key) -> bytes:
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise _rejected(key, f"{name!r} is neither a name nor an id")
    if isinstance(name, int):
        if not 0 < name < _INT64:
            raise _rejected(key, f"id {name} is not in 1 … 2⁶³ − 1")
        return _text(kind, key) + _ID + name.to_bytes(8, "big")
    return _text(kind, key) + _NAME + _text(name, key)


def _text(text: str, key: Key) -> bytes:
    """Return text with an end mark that sorts before any going on."""
    if not isinstance(text, str) or not text:
        raise _rejected(key, f"{text!r} is no kind or name")
    if _RESERVED.fullmatch(text):
        raise _rejected(key, f"{text!r} is reserved")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise _rejected(key, f"{text!r} is not Unicode text") from error
    if len(data) > INDEXED_BYTES:
        raise _rejected(key, f"a kind or name has {len(data)} bytes, the limit is {INDEXED_BYTES}")
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def _rejected(key: Key, reason: str) -> Rejected:
    return Rejected(f"key {str(key)[:200]}: {reason}", status="INVALID_ARGUMENT")


def _take(data: bytes) -> tuple[str, bytes]:
    end = data.index(b"\x00\x01")
    return data[:end].replace(b"\x00\xff", b"\x00").decode(), data[end + 2 :]


def _check_property(name: str, value: Value) -> None:
    reason = None
    if not isinstance(name, str) or not name or _RESERVED.fullmatch(name):
        reason = "is no name for a property"
    elif isinstance(value, list | tuple):
        if not all(isinstance(item, str) for item in value):
            reason = "holds a list with an item that is no text"
        elif not all(_is_text(item) for item in value):
            reason = "holds text that is not Unicode"
    elif isinstance(value, str) and not _is_text(value):
        reason = "holds text that is not Unicode"
    elif isinstance(value, str | bytes):
        size = len(value if isinstance(value, bytes) else value.encode())
        reason = f"holds {size} bytes, the limit is {UNINDEXED_BYTES}" if size > UNINDEXED_BYTES else None
    elif isinstance(value, datetime):
        reason = "holds a time without a zone" if value.tzinfo is None else None
    elif isinstance(value, int):
        reason = None if -_INT64 <= value < _INT64 else f"holds {value}, which is no 64-bit integer"
    elif not (value is None or isinstance(value, float)):
        reason = f"holds a {type(value).__name__}, which cannot be stored"
    if reason is not None:
        raise Rejected(f"property {name!r} {reason}", status="INVALID_ARGUMENT")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _index_rows(properties: Mapping[str, Value], indexed: list[str]) -> Iterator[tuple[str, bytes]]:
    for name in indexed:
        value = properties[name]
        for item in value if isinstance(value, list | tuple) else (value,):
            encoded = encode_value(item)
            if isinstance(item, str | bytes) and len(encoded) - 1 > INDEXED_BYTES:
                raise Rejected(
                    f"property {name!r} is indexed and has {len(encoded) - 1} bytes, the limit is {INDEXED_BYTES}",
                    status="INVALID_ARGUMENT",
                )
            yield name, encoded
