"""Entities, keys and values ↔ Datastore's protocol buffers. Pure.

Plain protobuf objects: their proto-plus wrappers cost more than the rest of a read together.
"""

from datetime import datetime
from typing import Any, Final

from google.cloud.datastore_v1 import types

from tally.clock import SECOND, from_datetime, to_datetime
from tally.errors import Rejected
from tally.ports import Entity, Key, Value

_Key: Final = types.Key.pb()
_INT64: Final = range(-(1 << 63), 1 << 63)


class Codec:
    """Knows the project and the database, which every key carries."""

    def __init__(self, project: str, database: str) -> None:
        self._partition = types.PartitionId.pb()(project_id=project, database_id=database)

    def write_key(self, key: Key, target: Any) -> None:
        """Fill a protobuf Key."""
        target.partition_id.CopyFrom(self._partition)
        for kind, identifier in key:
            if isinstance(identifier, int):
                target.path.add(kind=kind, id=identifier)
            else:
                target.path.add(kind=kind, name=identifier)

    def key(self, key: Key) -> Any:
        message = _Key()
        self.write_key(key, message)
        return message

    def write_entity(self, entity: Entity, target: Any) -> None:
        """Fill a protobuf Entity; raise Rejected for a value that Datastore cannot hold."""
        self.write_key(entity.key, target.key)
        for name, value in entity.properties.items():
            write_value(name, value, target.properties[name], indexed=name in entity.indexed)


def write_value(name: str, value: Value, target: Any, *, indexed: bool) -> None:
    """Fill a protobuf Value; raise Rejected for one that no store holds."""
    if isinstance(value, list | tuple):
        target.array_value.SetInParent()
        for item in value:
            if not isinstance(item, str):
                raise _rejected(name, f"is a list with a {type(item).__name__}: want texts")
            write_value(name, item, target.array_value.values.add(), indexed=indexed)
        return
    target.exclude_from_indexes = not indexed
    if value is None:
        target.null_value = 0
    elif isinstance(value, bool):
        target.boolean_value = value
    elif isinstance(value, int):
        if value not in _INT64:
            raise _rejected(name, f"is {value}: integers have 64 bits")
        target.integer_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        try:
            target.string_value = value
        except ValueError as error:  # a lone surrogate
            raise _rejected(name, "is text that is not Unicode") from error
    elif isinstance(value, bytes):
        target.blob_value = value
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise _rejected(name, f"is {value!r}: a datetime needs a time zone")
        target.timestamp_value.seconds, microseconds = divmod(from_datetime(value), SECOND)
        target.timestamp_value.nanos = microseconds * 1_000
    else:
        raise _rejected(name, f"is a {type(value).__name__}, which no store holds")


def _rejected(name: str, why: str) -> Rejected:
    return Rejected(f"property {name!r} {why}", status="INVALID_ARGUMENT")


def read_key(message: Any) -> Key:
    return tuple((step.kind, step.id if step.WhichOneof("id_type") == "id" else step.name) for step in message.path)


def read_entity(message: Any, version: int) -> Entity:
    """Return the entity of a protobuf Entity; `version` comes with the result that holds it."""
    values = message.properties
    return Entity(
        key=read_key(message.key),
        properties={name: _read_value(name, value) for name, value in values.items()},
        indexed=frozenset(name for name, value in values.items() if _is_indexed(value)),
        version=version,
    )


def _read_value(name: str, value: Any) -> Value:
    kind = value.WhichOneof("value_type")
    match kind:
        case "string_value" | "blob_value" | "integer_value" | "boolean_value" | "double_value":
            plain: Value = getattr(value, kind)
            return plain
        case "null_value" | None:
            return None
        case "timestamp_value":
            return to_datetime(read_instant(value.timestamp_value))
        case "array_value":
            return tuple(str(_read_value(name, item)) for item in value.array_value.values)
    raise _rejected(name, f"is a {kind}, which Tally never writes")


def _is_indexed(value: Any) -> bool:
    if value.WhichOneof("value_type") == "array_value":
        return any(not item.exclude_from_indexes for item in value.array_value.values)
    return not value.exclude_from_indexes


def read_instant(timestamp: Any) -> int:
    """Return the µs since 1970 of a protobuf Timestamp."""
    instant: int = timestamp.seconds * SECOND + timestamp.nanos // 1_000
    return instant
