"""Ports that a test can count, slow down and break, over the fakes."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tally.errors import BackendError
from tally.ports import Committed, Key, Lookup, Outgoing, Page, Publisher, Query, Store, Write


def unseen_errors(main: Callable[[], Coroutine[Any, Any, None]]) -> list[str]:
    """Run a coroutine on a real loop, which the virtual one is not: it tells of errors that nobody was told of."""
    seen: list[str] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _, context: seen.append(context["message"]))
        runner.run(main())
        gc.collect()
    return seen


class Trouble:
    """What a port does to its calls: `error` raises it, `after` raises it when the call was applied, `seconds` waits.

    `calls` counts them by name.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.seconds = 0.0
        self.error: BackendError | None = None
        self.after: BackendError | None = None

    async def begin(self, name: str) -> None:
        self.calls[name] += 1
        if self.seconds:
            await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        if self.after is not None:
            raise self.after


class TroubledStore(Trouble):
    """A Store. `lost_replies`: each makes one commit fail after it was applied; `refusing`: no commit is applied;
    `read_time_skew` in µs."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self.lost_replies: list[BackendError] = []
        self.refusing: BackendError | None = None
        self.read_time_skew = 0
        self.gets: list[Sequence[Key]] = []

    async def get(self, keys: Sequence[Key]) -> Lookup:
        self.gets.append(keys)
        await self.begin("get")
        answer = await self._store.get(keys)
        self.end()
        if answer.read_time is None or not self.read_time_skew:
            return answer
        return Lookup(
            found=answer.found,
            missing=answer.missing,
            deferred=answer.deferred,
            read_time=answer.read_time + self.read_time_skew,
        )

    async def commit(self, writes: Sequence[Write]) -> Committed:
        await self.begin("commit")
        if self.refusing is not None:
            raise self.refusing
        answer = await self._store.commit(writes)
        if self.lost_replies:
            raise self.lost_replies.pop()
        return answer

    async def query(self, query: Query) -> Page:
        await self.begin("query")
        return await self._store.query(query)


class TroubledPublisher(Trouble):
    def __init__(self, publisher: Publisher) -> None:
        super().__init__()
        self._publisher = publisher
        self.messages: list[Outgoing] = []

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        await self.begin("publish")
        ids = await self._publisher.publish(topic, messages)
        self.messages += messages
        self.end()
        return ids
