"""The Store port in memory: strongly consistent, atomic, strict about the service's limits. Never fails by itself.

`flavour` tells the two emulators apart where they differ: in what becomes of a stale update that did not ask to fail.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from tally.clock import Clock
from tally.errors import Refused, Rejected, Unavailable
from tally.limits import CHANNEL_BYTES, LARGE_ENTITIES, LOOKUP_KEYS
from tally.ports import Committed, Delete, Entity, Insert, Key, Lookup, OnConflict, Page, Query, Update, Value, Write
from tally.testing import query as queries

Flavour = Literal["datastore", "firestore"]

# The service's own limits, in bytes.
_ENTITY, _UNINDEXED, _INDEXED, _NAME, _REQUEST = 1_048_572, 1_048_487, 1_500, 1_500, 10 * 1024 * 1024
_INT64 = 1 << 63


class FakeStore:
    """`clock` gives the read times; without one there are none, as on one emulator."""

    def __init__(self, *, clock: Clock | None = None, flavour: Flavour = "datastore") -> None:
        self.entities: dict[Key, Entity] = {}
        self._kinds: dict[str, dict[Key, Entity]] = {}
        self._version = 0
        self._clock = clock
        self._flavour = flavour

    async def get(self, keys: Sequence[Key]) -> Lookup:
        if len(keys) > LOOKUP_KEYS:
            raise Rejected(f"{len(keys)} keys in one lookup, over {LOOKUP_KEYS}", status="INVALID_ARGUMENT")
        _distinct(keys)
        for key in keys:
            _check_key(key)
        found = tuple(self.entities[key] for key in keys if key in self.entities)
        missing = tuple(key for key in keys if key not in self.entities)
        _check_answer(found)
        return Lookup(found=found, missing=missing, read_time=self._clock.now() if self._clock else None)

    async def commit(self, writes: Sequence[Write]) -> Committed:
        _check(writes)
        stale = [self._stale(write) for write in writes]
        self._version += 1
        versions = []
        conflict = False
        for write, is_stale in zip(writes, stale, strict=True):
            if is_stale and self._flavour == "datastore":
                conflict = True
                versions.append(self.entities[key_of(write)].version)
            else:
                self._apply(write)
                versions.append(self._version)
        return Committed(versions=tuple(versions), conflict_detected=conflict)

    async def query(self, query: Query) -> Page:
        page = queries.answer(query, self._kinds.get(query.kind, {}).values())
        _check_answer(page.entities)
        return page

    def of_kind(self, kind: str) -> Sequence[Entity]:
        """Return the entities of a kind as they are now: for tests to look at."""
        return tuple(self._kinds.get(kind, {}).values())

    def _stale(self, write: Write) -> bool:
        """Raise Refused if a precondition does not hold; say if it is an update that is stale and may be."""
        stored = self.entities.get(key_of(write))
        match write:
            case Insert():
                if stored is not None:
                    raise Refused(f"{key_of(write)} exists", status="ALREADY_EXISTS")
            case Update():
                if stored is None:
                    status = "NOT_FOUND" if self._flavour == "datastore" else "FAILED_PRECONDITION"
                    raise Refused(f"{key_of(write)} does not exist", status=status)
                if stored.version != write.base_version:
                    if write.on_conflict is OnConflict.FAIL:
                        raise Refused(f"{key_of(write)} is at another version", status="FAILED_PRECONDITION")
                    return True
            case Delete(base_version=int(base)):
                if stored is None or stored.version != base:
                    raise Refused(f"{key_of(write)} is at another version", status="FAILED_PRECONDITION")
        return False

    def _apply(self, write: Write) -> None:
        key = key_of(write)
        kind = self._kinds.setdefault(key[-1][0], {})
        if isinstance(write, Delete):
            self.entities.pop(key, None)
            kind.pop(key, None)
            return
        properties = {name: _frozen(value) for name, value in write.entity.properties.items()}
        self.entities[key] = kind[key] = Entity(
            key=key,
            properties=MappingProxyType(properties),
            indexed=frozenset(write.entity.indexed) & properties.keys(),
            version=self._version,
        )


def key_of(write: Write) -> Key:
    return write.key if isinstance(write, Delete) else write.entity.key


def size(entity: Entity) -> int:
    """Return about how many bytes the service would count for an entity."""
    path = sum(len(kind) + (len(name) if isinstance(name, str) else 8) for kind, name in entity.key)
    return path + sum(len(name) + _width(value) for name, value in entity.properties.items())


def _width(value: Value) -> int:
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        return len(value.encode())
    if value is None or isinstance(value, bool | int | float | datetime):
        return 8
    return sum(len(each.encode()) for each in value)


def _frozen(value: Value) -> Value:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(value) if isinstance(value, list) else value


def _check(writes: Sequence[Write]) -> None:
    """Raise Rejected for what the service refuses whatever is stored."""
    _distinct([key_of(write) for write in writes])
    total = 0
    for write in writes:
        _check_key(key_of(write))
        if not isinstance(write, Delete):
            total += _check_entity(write.entity)
    if total > _REQUEST:
        raise Rejected(f"a request of {total} bytes, over {_REQUEST}", status="INVALID_ARGUMENT")


def _check_answer(entities: Sequence[Entity]) -> None:
    """Raise Unavailable for an answer that no channel takes: asking for the same again will never help."""
    if len(entities) <= LARGE_ENTITIES:
        return
    total = sum(map(size, entities))
    if total > CHANNEL_BYTES:
        raise Unavailable(f"an answer of {total} bytes, over {CHANNEL_BYTES}", status="RESOURCE_EXHAUSTED")


def _distinct(keys: Sequence[Key]) -> None:
    if len(set(keys)) < len(keys):
        raise Rejected("a key is named twice", status="INVALID_ARGUMENT")


@lru_cache(maxsize=10_000)
def _check_key(key: Key) -> None:
    if not key:
        raise Rejected("an empty key", status="INVALID_ARGUMENT")
    for _, name in key:
        if isinstance(name, int):
            good = name > 0
        else:
            good = 0 < len(name.encode()) <= _NAME and not (
                len(name) > 4 and name.startswith("__") and name.endswith("__")
            )
        if not good:
            raise Rejected(f"key name or id {name!r}", status="INVALID_ARGUMENT")


def _check_text(name: str, value: Value) -> None:
    """Raise Rejected for a lone surrogate, which UTF-8 cannot carry."""
    try:
        for text in (value,) if isinstance(value, str) else value if isinstance(value, list | tuple) else ():
            text.encode()
    except UnicodeEncodeError as error:
        raise Rejected(f"property {name!r} is text that is not Unicode", status="INVALID_ARGUMENT") from error


def _check_entity(entity: Entity) -> int:
    for name, value in entity.properties.items():
        _check_text(name, value)
        limit = _INDEXED if name in entity.indexed else _UNINDEXED
        if isinstance(value, bytes | str) and _width(value) > limit:
            raise Rejected(f"property {name!r} is over {limit} bytes", status="INVALID_ARGUMENT")
        if isinstance(value, datetime) and value.tzinfo is None:
            raise Rejected(f"property {name!r} is a datetime without a zone", status="INVALID_ARGUMENT")
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise Rejected(f"property {name!r} is no 64-bit integer", status="INVALID_ARGUMENT")
    total = size(entity)
    if total > _ENTITY:
        raise Rejected(f"an entity of {total} bytes, over {_ENTITY}", status="INVALID_ARGUMENT")
    return total
