"""Reads beside the writer: a few threads with connections of their own, each read on the newest committed state."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from tally.embedded.failure import translate
from tally.embedded.file import Connection, File
from tally.errors import Unavailable

T = TypeVar("T")
THREADS = 2


class Reader:
    def __init__(self, file: File) -> None:
        self._file = file
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tally-reader")
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._closed = False
        self._process = os.getpid()

    async def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read in a thread; raises Unavailable, and what `read` raises of the ports' errors."""
        if self._closed:
            raise Unavailable(f"{self._file.path} is closed", status="CLOSED")
        if os.getpid() != self._process:
            raise Unavailable(f"{self._file.path} was opened before a fork: open it in the child", status="FORKED")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, read)

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _call(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._borrow()
        except sqlite3.Error as error:
            raise translate(error, self._file.path) from error
        try:
            self._file.check(connection)
            value = read(connection)
        except sqlite3.Error as error:
            connection.close()
            raise translate(error, self._file.path) from error
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)
        return value

    def _borrow(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            connection = self._file.connect()
            connection.execute("PRAGMA query_only = ON")
            return connection
