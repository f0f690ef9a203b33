"""A fair lock between processes: who asks while another writes goes next.

SQLite's own write lock is polled: a process that writes in a tight loop takes it again before one that sleeps has
looked. Two advisory locks mend that. A process takes `queue`, then `turn`, then lets `queue` go. The next in line waits
for `turn` with `queue` in its hand, so the one that just wrote must stand behind it. The kernel drops both when a
process dies.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turn:
    def __init__(self, path: Path) -> None:
        """`path` is the file guarded; the locks are two empty files beside it."""
        self._queue = os.open(f"{path}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._turn = os.open(f"{path}-turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

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
        os.close(self._queue)
        os.close(self._turn)
