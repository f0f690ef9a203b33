"""A fair lock between processes: who asks while another writes goes next.

SQLite's own write lock is polled: a process that writes in a tight loop takes it again before one that sleeps has
looked. Two advisory locks mend that. A process takes `queue`, then `turn`, then lets `queue` go. The next in line waits
for `turn` with `queue` in its hand, so the one that just wrote must stand behind it. The kernel drops both when a
process dies; not while it is stopped: it then keeps all others from writing, and `holders` tells who it is. A child of
a fork lets go of them at once: it would keep the turn of a parent that died in it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet


class Turn:
    def __init__(self, path: Path) -> None:
        """`path` is the file guarded; the locks are two empty files beside it."""
        self._queue, self._turn = (os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666) for lock in _locks(path))
        _open.add(self)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the turn; waits without a limit and without the interpreter's lock."""
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        _open.discard(self)
        os.close(self._queue)
        os.close(self._turn)


_open: WeakSet[Turn] = WeakSet()


def _let_go() -> None:
    for turn in list(_open):
        turn.close()


os.register_at_fork(after_in_child=_let_go)


def holders(path: Path) -> set[int]:
    """Return the processes that hold a lock of the file `path` now; none where the system does not say (not Linux)."""
    inodes = {str(lock.stat().st_ino) for lock in _locks(path) if lock.exists()}
    table = Path("/proc/locks")
    rows = [row.split() for row in table.read_text().splitlines()] if table.exists() else []
    return {int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rpartition(":")[2] in inodes}


def _locks(path: Path) -> tuple[Path, Path]:
    return Path(f"{path}-queue"), Path(f"{path}-turn")
