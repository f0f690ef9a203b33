"""A store that does as told: fails before, after or instead of a call, defers keys, and counts what it is asked."""

import asyncio
from collections.abc import Callable, Sequence

from tally.errors import BackendError
from tally.ports import Committed, Key, Lookup, Page, Query, Store, Write


class ScriptedStore:
    """`on_get` and `on_commit` are asked before each call: raise to fail it, or return an error to fail its reply."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.on_get: Callable[[Sequence[Key]], BackendError | None] = lambda keys: None
        self.on_commit: Callable[[Sequence[Write]], BackendError | None] = lambda writes: None
        self.defer: Callable[[Sequence[Key]], set[Key]] = lambda keys: set()
        self.gate: asyncio.Event | None = None
        self.gets: list[tuple[Key, ...]] = []
        self.commits: list[tuple[Write, ...]] = []
        self.in_flight = 0
        self.most_in_flight = 0

    async def get(self, keys: Sequence[Key]) -> Lookup:
        self.gets.append(tuple(keys))
        after = self.on_get(keys)
        later = self.defer(keys)
        answer = await self.store.get([key for key in keys if key not in later])
        if after is not None:
            raise after
        return Lookup(found=answer.found, missing=answer.missing, deferred=tuple(later), read_time=answer.read_time)

    async def commit(self, writes: Sequence[Write]) -> Committed:
        self.commits.append(tuple(writes))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            after = self.on_commit(writes)
            answer = await self.store.commit(writes)
            if after is not None:
                raise after
            return answer
        finally:
            self.in_flight -= 1

    async def query(self, query: Query) -> Page:
        return await self.store.query(query)


def once(error: BackendError, *, after: bool = False) -> Callable[[object], BackendError | None]:
    """Fail one call: its reply with `after`, else the call itself."""
    left = [error]

    def fail(_: object) -> BackendError | None:
        if not left:
            return None
        if after:
            return left.pop()
        raise left.pop()

    return fail
