"""What survives a restart: queues, tasks and taken names, in one SQLite file.

Every change is committed before the call that made it is answered, so a killed process loses no task. The commits do
not wait for the disk (WAL, synchronous=NORMAL): a power cut may lose the last moments. A task whose answer was not
recorded is dispatched again.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from tally.tasks.entry import Entry

FORMAT = 1
SWEEP_EVERY = 1_000  # dropped tasks between two sweeps of the released names
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, message BLOB, from_yaml INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gone_queues (name TEXT PRIMARY KEY, until INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (queue TEXT, sequence INT, entry BLOB, PRIMARY KEY (queue, sequence)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS names (queue TEXT, id TEXT, until INTEGER, PRIMARY KEY (queue, id)) WITHOUT ROWID;
"""


class StoredQueue(NamedTuple):
    name: str
    message: bytes
    from_yaml: bool


class Journal(Protocol):
    """Where changes are recorded; each call is durable when it returns."""

    def put_queue(self, queue: StoredQueue) -> None: ...
    def drop_queue(self, name: str, until: int) -> None:
        """Forget a queue with its tasks and names; its own name stays taken until then."""
        ...

    def put_task(self, queue: str, entry: Entry) -> None: ...
    def drop_task(self, queue: str, entry: Entry, *, now: int, taken_until: int | None) -> None: ...
    def purge(self, queue: StoredQueue, taken_until: int) -> None: ...
    def clear(self) -> None: ...


class NoJournal:
    """Records nothing."""

    def put_queue(self, queue: StoredQueue) -> None: ...
    def drop_queue(self, name: str, until: int) -> None: ...
    def put_task(self, queue: str, entry: Entry) -> None: ...
    def drop_task(self, queue: str, entry: Entry, *, now: int, taken_until: int | None) -> None: ...
    def purge(self, queue: StoredQueue, taken_until: int) -> None: ...
    def clear(self) -> None: ...


class SqliteJournal:
    """One file, one process at a time: a second one is refused with sqlite3.OperationalError, another format with
    ValueError."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=0)
        self._drops = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Entry).decode
        try:
            self._prepare(path)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, path: Path) -> None:
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        stored = self.meta("format")
        if stored is None:
            self.put_meta("format", str(FORMAT).encode())
        elif int(stored) != FORMAT:
            raise ValueError(f"{path} has format {int(stored)}, this emulator reads {FORMAT}")

    def put_queue(self, queue: StoredQueue) -> None:
        self._db.execute("INSERT OR REPLACE INTO queues VALUES (?, ?, ?)", queue)

    def drop_queue(self, name: str, until: int) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM queues WHERE name = ?", (name,))
            self._db.execute("DELETE FROM tasks WHERE queue = ?", (name,))
            self._db.execute("DELETE FROM names WHERE queue = ?", (name,))
            self._db.execute("INSERT OR REPLACE INTO gone_queues VALUES (?, ?)", (name, until))

    def put_task(self, queue: str, entry: Entry) -> None:
        self._db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", (queue, entry.sequence, self._encode(entry)))

    def drop_task(self, queue: str, entry: Entry, *, now: int, taken_until: int | None) -> None:
        self._drops += 1
        if self._drops % SWEEP_EVERY == 0:
            self._db.execute("DELETE FROM names WHERE until <= ?", (now,))
        with self._transaction():
            self._db.execute("DELETE FROM tasks WHERE queue = ? AND sequence = ?", (queue, entry.sequence))
            if taken_until is not None:
                self._db.execute("INSERT OR REPLACE INTO names VALUES (?, ?, ?)", (queue, entry.id, taken_until))

    def purge(self, queue: StoredQueue, taken_until: int) -> None:
        with self._transaction():
            for _, entry in self._entries(queue.name):
                if entry.named:
                    self._db.execute(
                        "INSERT OR REPLACE INTO names VALUES (?, ?, ?)", (queue.name, entry.id, taken_until)
                    )
            self._db.execute("DELETE FROM tasks WHERE queue = ?", (queue.name,))
            self.put_queue(queue)

    def clear(self) -> None:
        with self._transaction():
            for table in ("queues", "gone_queues", "tasks", "names"):
                self._db.execute(f"DELETE FROM {table}")

    # Reading, at the start

    def queues(self) -> list[StoredQueue]:
        rows = self._db.execute("SELECT name, message, from_yaml FROM queues ORDER BY name")
        return [StoredQueue(name, message, bool(from_yaml)) for name, message, from_yaml in rows]

    def tasks(self, queue: str) -> list[Entry]:
        """Return a queue's tasks, oldest first."""
        return [entry for _, entry in self._entries(queue)]

    def names(self, queue: str, now: int) -> list[tuple[str, int]]:
        """Return a queue's taken names with their releases, soonest first; the released ones are forgotten."""
        self._db.execute("DELETE FROM names WHERE queue = ? AND until <= ?", (queue, now))
        return self._db.execute("SELECT id, until FROM names WHERE queue = ? ORDER BY until", (queue,)).fetchall()

    def gone_queues(self, now: int) -> dict[str, int]:
        self._db.execute("DELETE FROM gone_queues WHERE until <= ?", (now,))
        return dict(self._db.execute("SELECT name, until FROM gone_queues"))

    def meta(self, key: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put_meta(self, key: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def close(self) -> None:
        self._db.close()

    def _entries(self, queue: str) -> Iterator[tuple[int, Entry]]:
        rows = self._db.execute(
            "SELECT sequence, entry FROM tasks WHERE queue = ? ORDER BY sequence", (queue,)
        ).fetchall()
        for sequence, entry in rows:
            yield sequence, self._decode(entry)

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._db)


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
