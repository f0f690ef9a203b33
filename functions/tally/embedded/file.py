"""The file: its tables, its format number, and how a connection to it is set up.

Power loss: in WAL mode a transaction is safe once its frames and commit mark are in the log and the log is synced.
With `power-loss` (synchronous=FULL) the sync comes before the answer. With `process-crash` (NORMAL) it comes at the
next checkpoint: a crash of a process loses nothing, since the kernel has the data; a crash of the machine loses the
last answered writes, but always a whole suffix of them, so that queue and ledger still agree, and damages nothing.
"""

import os
import re
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tally.config import Durability
from tally.embedded.turn import Turn
from tally.errors import ConfigError, Unavailable

FORMAT = 1
APPLICATION = 0x54414C59
OLDEST_SQLITE = (3, 35, 0)
BUSY_SECONDS = 5
CHECKPOINT_PAGES = 4_000
LOG_BYTES_KEPT = 64_000_000

_SYNCHRONOUS = {"power-loss": "FULL", "process-crash": "NORMAL"}
_NETWORK = re.compile(
    r"nfs4?|cifs|smb\w*|9p|afs|ceph|glusterfs|lustre|beegfs|gpfs|virtiofs|"
    r"fuse\.(sshfs|gcsfuse|s3fs|rclone|glusterfs|juicefs|ceph)"
)

# `counter` gives versions and message ids: one row, only ever raised, so that none is used twice. It begins at the time
# (in µs), so that a file made anew in the place of another gives none of its versions to a worker that holds them.
# `delivery` is apart from `message`, so that a lease rewrites 30 bytes and not the message.
_TABLES = f"""
CREATE TABLE counter (value INTEGER NOT NULL);
INSERT INTO counter SELECT CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER);

CREATE TABLE entity (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL,
    version INTEGER NOT NULL, indexed INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX entity_by_kind ON entity (kind, key);
CREATE TABLE property (
    kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, key BLOB NOT NULL,
    PRIMARY KEY (kind, name, value, key)
) WITHOUT ROWID;
CREATE INDEX property_by_key ON property (key, name, value);

CREATE TABLE topic (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE subscription (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, topic INTEGER NOT NULL REFERENCES topic (id)
);
CREATE TABLE message (
    id INTEGER PRIMARY KEY, name INTEGER NOT NULL, publish_time INTEGER NOT NULL,
    attributes TEXT NOT NULL, data BLOB NOT NULL
);
CREATE TABLE delivery (
    id INTEGER PRIMARY KEY, subscription INTEGER NOT NULL, available_at INTEGER NOT NULL, attempt INTEGER NOT NULL
);
CREATE INDEX delivery_due ON delivery (subscription, available_at);

PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
"""


class Connection(sqlite3.Connection):
    """Knows which file it has open: `place` is its device and number, None if there was none."""

    place: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    path: Path
    durability: Durability

    def connect(self, *, mode: Literal["rw", "rwc"] = "rw") -> Connection:
        """Open a connection for one thread at a time; `rwc` makes a missing file. Raises sqlite3.Error."""
        connection: Connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=Connection,
        )
        connection.place = self.place()
        for pragma in (
            f"synchronous = {_SYNCHRONOUS[self.durability]}",
            "fullfsync = ON",  # macOS: fsync alone does not reach the disk
            "checkpoint_fullfsync = ON",
            "secure_delete = OFF",
            f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
            f"journal_size_limit = {LOG_BYTES_KEPT}",
            "cache_size = -16000",
        ):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def place(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def short_of_room(self) -> bool:
        """Say whether a log that grows could take the last of the disk."""
        return shutil.disk_usage(self.path.parent).free < LOG_BYTES_KEPT

    def check(self, connection: Connection) -> None:
        """Raise Unavailable if the file was deleted or replaced since: what is written would be gone with it."""
        if connection.place != self.place():
            raise Unavailable(f"{self.path} was deleted or replaced while in use", status="FILE_MOVED")

    def create(self) -> None:
        """Make the folder and the tables where missing.

        Raises ConfigError if the folder cannot be made or is on a network, if the file is not ours, or if its format is
        newer than ours; sqlite3.Error.
        """
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConfigError(
                f"SQLite {sqlite3.sqlite_version} is too old for the embedded backend: want 3.35 or later"
            )
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            turn = Turn(self.path)
        except OSError as error:
            raise ConfigError(f"TALLY_STATE={folder}: {error.strerror}") from error
        _refuse_network(folder)
        connection = self.connect(mode="rwc")
        try:
            if not self._has_tables(connection):  # a stopped process that holds the turn keeps nobody from opening
                with turn.taken():
                    self._create_tables(connection)
        finally:
            connection.close()
            turn.close()

    def _has_tables(self, connection: sqlite3.Connection) -> bool:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if application == APPLICATION:
            if found > FORMAT:
                raise ConfigError(
                    f"{self.path} has format {found}, made by a newer Tally; this one knows up to {FORMAT}: "
                    "upgrade, or set TALLY_STATE to another folder"
                )
            return True
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise ConfigError(f"{self.path} is a SQLite file, but not Tally's: set TALLY_STATE to another folder")
        return False

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        if self._has_tables(connection):
            return
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
        _sync_folder(self.path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new file's name itself survive a power loss."""
    for place in (folder, folder.absolute().parent):
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _refuse_network(folder: Path) -> None:
    mounts = Path("/proc/self/mounts")
    system = file_system(folder.resolve(), mounts.read_text(errors="replace")) if mounts.exists() else ""
    if _NETWORK.fullmatch(system):
        raise ConfigError(
            f"TALLY_STATE={folder} is on a network file system ({system}), whose locks cannot be trusted: "
            "set TALLY_STATE to a folder on a local disk"
        )


def file_system(folder: Path, mounts: str) -> str:
    """Return the file system type that holds an absolute folder, by the text of /proc/self/mounts; "" if unknown."""
    best = (-1, "")
    for line in mounts.splitlines():
        _, point, system, *_ = line.split(" ")
        place = Path(point.replace("\\040", " "))
        if folder.is_relative_to(place):
            best = max(best, (len(place.parts), system), key=lambda candidate: candidate[0])
    return best[1]
