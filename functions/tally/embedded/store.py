"""The Store on the file. Versions come from the file's counter, so a deleted and made-again entity has a new one.

Its transactions are SQLite's: there is no unknown outcome but a lost answer of the disk, and nothing is ever deferred.
"""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tally.clock import Clock
from tally.embedded import query as queries
from tally.embedded.encoding import REQUEST_BYTES, Row, decode_entity, encode_entity, encode_key, indexed_rows
from tally.embedded.reader import Reader
from tally.embedded.writer import Transaction, Writer
from tally.errors import Refused, Rejected
from tally.limits import LOOKUP_KEYS
from tally.ports import Committed, Delete, Entity, Insert, Key, Lookup, OnConflict, Page, Query, Update, Write


class _Change(NamedTuple):
    write: Write
    key: bytes
    row: Row | None


class _Stored(NamedTuple):
    version: int
    indexed: int


class SqliteStore:
    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def get(self, keys: Sequence[Key]) -> Lookup:
        if len(keys) > LOOKUP_KEYS:
            raise Rejected(f"a lookup of {len(keys)} keys, the limit is {LOOKUP_KEYS}", status="INVALID_ARGUMENT")
        encoded = {encode_key(key): key for key in keys}
        read_time = self._clock.now()
        found = await self._reader.run(partial(_read, encoded))
        there = {entity.key for entity in found}
        missing = tuple(key for key in encoded.values() if key not in there)
        return Lookup(found=found, missing=missing, read_time=read_time)

    async def commit(self, writes: Sequence[Write]) -> Committed:
        changes = [_change(write) for write in writes]
        if len({change.key for change in changes}) < len(changes):
            raise Rejected("a commit writes one key twice", status="INVALID_ARGUMENT")
        size = sum(len(change.key) + (len(change.row.body) if change.row else 0) for change in changes)
        if size > REQUEST_BYTES:
            raise Rejected(f"a commit of {size} bytes, the limit is {REQUEST_BYTES}", status="INVALID_ARGUMENT")
        return await self._writer.run(partial(_apply, changes))

    async def query(self, query: Query) -> Page:
        statement = queries.build(query)
        return await self._reader.run(partial(_select, query, statement))


def _read(keys: dict[bytes, Key], connection: sqlite3.Connection) -> tuple[Entity, ...]:
    marks = ",".join("?" * len(keys))
    rows = connection.execute(f"SELECT key, version, body FROM entity WHERE key IN ({marks})", list(keys))
    return tuple(decode_entity(*row) for row in rows.fetchall())


def _select(query: Query, statement: queries.Statement, connection: sqlite3.Connection) -> Page:
    rows = connection.execute(statement.sql, statement.arguments).fetchall()
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    entities = tuple(decode_entity(*row[:3]) for row in rows)
    if query.keys_only:
        entities = tuple(Entity(key=entity.key, properties={}, version=entity.version) for entity in entities)
    return Page(entities=entities, cursor=queries.cursor_of(rows[-1][0], rows[-1][3:]) if more and rows else None)


def _change(write: Write) -> _Change:
    if isinstance(write, Delete):
        return _Change(write, encode_key(write.key), None)
    row = encode_entity(write.entity)
    return _Change(write, row.key, row)


def _apply(changes: Sequence[_Change], transaction: Transaction) -> Committed:
    """Check every precondition before the first change, so that a refusal leaves nothing to undo."""
    stored = [_stored(transaction, change.key) for change in changes]
    kept = [_is_kept(change.write, now) for change, now in zip(changes, stored, strict=True)]
    version = transaction.next()
    versions = []
    for change, now, keep in zip(changes, stored, kept, strict=True):
        if not keep:
            _write(transaction, change, now, version)
        versions.append(now.version if keep and now else version)
    return Committed(versions=tuple(versions), conflict_detected=any(kept))


def _stored(transaction: Transaction, key: bytes) -> _Stored | None:
    row = transaction.execute("SELECT version, indexed FROM entity WHERE key = ?", (key,)).fetchone()
    return _Stored(*row) if row else None


def _is_kept(write: Write, stored: _Stored | None) -> bool:
    """Tell whether a stale write keeps what is stored and says so; raises Refused if a precondition does not hold."""
    version = stored.version if stored else 0
    match write:
        case Insert(entity) if stored:
            raise Refused(f"{entity.key} exists", status="ALREADY_EXISTS")
        case Update() if not stored:
            raise Refused(f"{write.entity.key} does not exist", status="NOT_FOUND")
        case Update() if version != write.base_version:
            if write.on_conflict is OnConflict.KEEP_STORED:
                return True
            raise _stale(write.entity.key, write.base_version, version)
        case Delete(base_version=int(base)) if base != version:
            raise _stale(write.key, base, version)
    return False


def _stale(key: Key, base: int, stored: int) -> Refused:
    return Refused(f"{key} has version {stored}, not {base}", status="FAILED_PRECONDITION")


def _write(transaction: Transaction, change: _Change, stored: _Stored | None, version: int) -> None:
    row = change.row
    kind = change.write.key[-1][0] if isinstance(change.write, Delete) else change.write.entity.key[-1][0]
    if stored and stored.indexed:
        body = transaction.execute("SELECT body FROM entity WHERE key = ?", (change.key,)).fetchone()[0]
        transaction.executemany(
            "DELETE FROM property WHERE kind = ? AND name = ? AND value = ? AND key = ?",
            [(kind, name, value, change.key) for name, value in indexed_rows(body)],
        )
    if row is None:
        transaction.execute("DELETE FROM entity WHERE key = ?", (change.key,))
        return
    transaction.execute(
        "INSERT INTO entity (key, kind, version, indexed, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
        "SET version = excluded.version, indexed = excluded.indexed, body = excluded.body",
        (row.key, row.kind, version, len(row.properties), row.body),
    )
    transaction.executemany(
        "INSERT INTO property (kind, name, value, key) VALUES (?, ?, ?, ?)",
        [(row.kind, name, value, row.key) for name, value in row.properties],
    )
