"""The backend on one SQLite file: opens it once and hands out the ports."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from tally.clock import Clock
from tally.config import Settings
from tally.embedded.failure import translate
from tally.embedded.file import File
from tally.embedded.messages import Housekeeper, SqlitePublisher, SqlitePuller, create_subscription, create_topic
from tally.embedded.reader import Reader
from tally.embedded.signal import Signal
from tally.embedded.store import SqliteStore
from tally.embedded.writer import Transaction, Writer
from tally.ports import Publisher, Puller, Store

T = TypeVar("T")
FILE_NAME = "tally.sqlite3"


class SqliteBackend:
    """The ports of one process on the file; belongs to the event loop that opened it."""

    store: Store
    publisher: Publisher

    def __init__(self, file: File, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._reader = Reader(file)
        self._writer = Writer(file, clock, Housekeeper(clock, asyncio.get_running_loop().time).keep)
        self._signal = Signal(self._reader)
        self.store = SqliteStore(self._writer, self._reader, clock)
        self.publisher = SqlitePublisher(self._writer, self._signal)

    @classmethod
    async def open(cls, settings: Settings, clock: Clock) -> "SqliteBackend":
        file = File(path=settings.state / FILE_NAME, durability=settings.durability)
        try:
            await asyncio.to_thread(file.create)
        except sqlite3.Error as error:
            raise translate(error, file.path) from error
        return cls(file, settings, clock)

    def puller(self, subscription: str) -> Puller:
        return SqlitePuller(subscription, self._writer, self._reader, self._signal, self._clock)

    async def prepare(self) -> None:
        channels = self._settings.channels

        def create(transaction: Transaction) -> None:
            for topic, subscription in channels:
                create_topic(transaction, topic)
                create_subscription(transaction, subscription, topic)

        await self.write(create)

    async def write(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation on the file in a transaction of its own or shared with others, durable when this returns."""
        return await self._writer.run(operation)

    async def close(self) -> None:
        """Finish the writes that wait, then let the file go."""
        await self._signal.close()
        await self._writer.close()
        await self._reader.close()
