"""SQLite's and the file system's errors as the ports' own: an outage, unless the value can never be stored."""

import sqlite3
from pathlib import Path

from tally.errors import BackendError, Rejected, Unavailable

_HINTS = {
    "SQLITE_FULL": "the disk is full: free some space, and the writes go on by themselves",
    "SQLITE_BUSY": "another program holds the file's lock: look for an open `sqlite3` shell or a stopped process",
    "SQLITE_READONLY": "the file or its folder is read-only",
    "SQLITE_CANTOPEN": "the file cannot be opened: look at the folder's owner and mode",
    "SQLITE_CORRUPT": "the file is damaged: stop every process and restore a copy, or run `sqlite3 FILE .recover`",
    "SQLITE_NOTADB": "this is no SQLite file",
}


def translate(error: Exception, path: Path) -> BackendError:
    """Return the port's error for `error`; its status is SQLite's own word, its message names the file."""
    if isinstance(error, BackendError):
        return error
    status = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if status == "SQLITE_TOOBIG" or isinstance(error, (OverflowError, sqlite3.DataError)):
        return Rejected(f"{path}: {error}", status=status)
    hint = next((text for name, text in _HINTS.items() if status.startswith(name)), None)
    return Unavailable(f"{path}: {error}" + (f" ({hint})" if hint else ""), status=status)
