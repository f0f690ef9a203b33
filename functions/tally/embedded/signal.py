"""Wakes the pulls that wait: at once for what this process did, within POLL_SECONDS for what another did.

Every publish and release raises the file's counter; one small read of it, only while someone waits, is all the polling.
"""

import asyncio
import sqlite3

from tally.embedded.reader import Reader
from tally.errors import BackendError

POLL_SECONDS = 0.02


class Signal:
    def __init__(self, reader: Reader) -> None:
        self.count = 0
        self._reader = reader
        self._changed: asyncio.Future[None] | None = None
        self._waiting = 0
        self._watcher: asyncio.Task[None] | None = None
        self._counter = 0

    def notify(self) -> None:
        """Wake everyone who waits."""
        self.count += 1
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def wait(self, seen: int, seconds: float) -> None:
        """Wait until something changed since `count` was `seen`, at most `seconds`."""
        if self.count != seen:
            return
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        self._waiting += 1
        try:
            await asyncio.wait([self._changed], timeout=seconds)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])

    async def _watch(self) -> None:
        try:
            while self._waiting:
                try:
                    counter = await self._reader.run(_counter)
                except BackendError:
                    counter = self._counter  # the pulls will meet it themselves
                if counter != self._counter:
                    self._counter = counter
                    self.notify()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._watcher = None


def _counter(connection: sqlite3.Connection) -> int:
    counter: int = connection.execute("SELECT value FROM counter").fetchone()[0]
    return counter
