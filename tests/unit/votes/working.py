"""What the tests of the worker share: a scripted store, a worker at work, and what a commit writes."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tally.errors import Unavailable
from tally.ports import Key, Write
from tally.testing.store import FakeStore, key_of
from tally.votes import keys
from tally.votes.worker import Worker
from tests.unit.votes.pipeline import Pipeline
from tests.unit.votes.scripted import ScriptedStore

DOWN = Unavailable("down", status="UNAVAILABLE")
Scene = Callable[[Pipeline, ScriptedStore], Coroutine[Any, Any, None]]


class Running:
    """A worker at work, until the block is left."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.stop = asyncio.Event()

    async def __aenter__(self) -> "Running":
        self.task = asyncio.create_task(self.worker.run(self.stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        assert await self.task == 0

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Look ten times a (virtual) second."""
        for _ in range(round(seconds * 10)):
            if condition():
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"not within {seconds} s")

    def settled(self) -> int:
        settled = self.worker.health().body["settled"]
        assert isinstance(settled, int)
        return settled


def shard_writes(writes: Sequence[Write]) -> set[Key]:
    return {key_of(write)[:1] for write in writes if key_of(write)[0][0] == keys.SHARD}


def up(_: object) -> None:
    """Fail nothing."""


def is_probe(writes: Sequence[Write]) -> bool:
    return any("~probe" in str(key_of(write)[0][1]) for write in writes)


def scripted(store: FakeStore | None = None) -> tuple[Pipeline, ScriptedStore]:
    pipeline = Pipeline()
    store_here = ScriptedStore(store or pipeline.backend.store)
    pipeline.store = store_here
    return pipeline, store_here
