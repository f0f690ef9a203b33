"""The ports with a stopwatch: how long each call takes, by what came of it."""

import asyncio
from collections.abc import Awaitable, Sequence
from time import perf_counter
from typing import TypeVar

from opentelemetry.metrics import Histogram, Meter

from tally.errors import TallyError
from tally.metrics import instruments
from tally.ports import (
    Backend,
    Committed,
    Key,
    Lookup,
    Outgoing,
    Page,
    Publisher,
    Puller,
    Query,
    Received,
    Store,
    Write,
)

T = TypeVar("T")


class _Watch:
    """Times the calls of one port. `outcome` is ok, an error's code, cancelled or bug."""

    def __init__(self, port: str, histogram: Histogram) -> None:
        self._port = port
        self._histogram = histogram

    async def time(self, operation: str, call: Awaitable[T]) -> T:
        start = perf_counter()
        outcome = "ok"
        try:
            return await call
        except TallyError as error:
            outcome = error.code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception:
            outcome = "bug"
            raise
        finally:
            labels = {"port": self._port, "operation": operation, "outcome": outcome}
            self._histogram.record(perf_counter() - start, labels)


class TimedStore:
    def __init__(self, store: Store, histogram: Histogram) -> None:
        self._store = store
        self._watch = _Watch("store", histogram)

    async def get(self, keys: Sequence[Key]) -> Lookup:
        return await self._watch.time("get", self._store.get(keys))

    async def commit(self, writes: Sequence[Write]) -> Committed:
        return await self._watch.time("commit", self._store.commit(writes))

    async def query(self, query: Query) -> Page:
        return await self._watch.time("query", self._store.query(query))


class TimedPublisher:
    def __init__(self, publisher: Publisher, histogram: Histogram) -> None:
        self._publisher = publisher
        self._watch = _Watch("publisher", histogram)

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        return await self._watch.time("publish", self._publisher.publish(topic, messages))


class TimedPuller:
    def __init__(self, puller: Puller, histogram: Histogram) -> None:
        self._puller = puller
        self._watch = _Watch("puller", histogram)

    async def pull(self, max_messages: int) -> Sequence[Received]:
        return await self._watch.time("pull", self._puller.pull(max_messages))

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        await self._watch.time("acknowledge", self._puller.acknowledge(ack_ids))

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        await self._watch.time("extend", self._puller.extend(ack_ids, seconds))


class TimedBackend:
    """A backend whose ports are timed."""

    store: Store
    publisher: Publisher

    def __init__(self, backend: Backend, meter: Meter) -> None:
        self._backend = backend
        self._histogram = instruments.histogram(meter, "tally.calls", instruments.SHORT)
        self.store = TimedStore(backend.store, self._histogram)
        self.publisher = TimedPublisher(backend.publisher, self._histogram)

    def puller(self, subscription: str) -> Puller:
        return TimedPuller(self._backend.puller(subscription), self._histogram)

    async def prepare(self) -> None:
        await self._backend.prepare()

    async def close(self) -> None:
        await self._backend.close()
