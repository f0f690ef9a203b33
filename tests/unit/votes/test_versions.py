"""Two versions of Tally side by side: this one, and a next one built by a small patch with formats of its own."""

import asyncio
import importlib.machinery
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from tally.ports import Outgoing
from tally.testing.loop import VirtualLoop
from tally.votes import batch, keys, ledger
from tally.votes.poll import Poll
from tally.votes.worker import Worker
from tests.simulation.bugs import Edit
from tests.simulation.planted import apply
from tests.unit.votes.next_version import PATCH
from tests.unit.votes.pipeline import Pipeline, poll, votes

PACKAGE = "tally.votes"


@pytest.fixture(scope="module")
def next_version() -> Iterator[dict[str, ModuleType]]:
    """Import the pipeline's modules a second time, patched, beside those that are there."""
    ours = {name: module for name, module in sys.modules.items() if name.startswith(PACKAGE)}
    package = sys.modules["tally"]
    for name in ours:
        del sys.modules[name]
    sys.meta_path.insert(0, _Patched())
    try:
        theirs = {
            name: importlib.import_module(f"{PACKAGE}.{name}") for name in ("batch", "ledger", "worker", "recount")
        }
    finally:
        del sys.meta_path[0]
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(ours)
        package.votes = ours[PACKAGE]  # type: ignore[attr-defined]  # as the import system sets it
    assert theirs["ledger"].FORMAT == ledger.FORMAT + 1
    yield theirs


class _Patched:
    """Finds the modules to be patched, and compiles their changed source."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        name = fullname.removeprefix(f"{PACKAGE}.")
        edits = [edit for edit in PATCH if edit.module == name]
        if not edits:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        spec.loader = _Loader(fullname, str(spec.origin), edits)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, edits: list[Edit]) -> None:
        super().__init__(fullname, path)
        self._edits = edits

    def get_code(self, fullname: str) -> Any:
        return compile(apply(Path(self.path).read_text(), self._edits, self.path), self.path, "exec")


class Fleet:
    """Workers and votes of both versions on one pipeline."""

    def __init__(self, next_version: dict[str, ModuleType], made: Poll) -> None:
        self.pipeline = Pipeline()
        self.made = made
        self.published = 0
        self._next = next_version
        self._running: list[tuple[asyncio.Event, asyncio.Task[int]]] = []

    def start(self, *, next_version: bool) -> None:
        pipeline = self.pipeline
        kind: type[Worker] = self._next["worker"].Worker if next_version else Worker
        worker = kind(
            pipeline.store,
            pipeline.backend.puller("votes"),
            pipeline.backend.publisher,
            dead_letter_topic="votes-dead",
            clock=pipeline.clock,
            random=Random(len(self._running)),
        )
        stop = asyncio.Event()
        self._running.append((stop, asyncio.create_task(worker.run(stop))))

    async def stop_oldest(self) -> None:
        stop, task = self._running.pop(0)
        stop.set()
        assert await task == 0

    async def vote(self, seconds: int, *, next_version: bool = False) -> None:
        """Let ten votes a second come in, from functions of one version."""
        encode = self._next["batch"].encode if next_version else batch.encode
        for _ in range(seconds):
            content = votes(self.made, range(self.published, self.published + 10), self.pipeline.clock.now())
            self.published += 10
            await self.pipeline.backend.publisher.publish("votes", [Outgoing(encode(content), {})])
            await asyncio.sleep(1)

    async def judge(self) -> None:
        """See that every vote counts once; the next version reads what both wrote."""
        counted = await self._next["recount"].recount(self.pipeline.store, self.made)
        assert not counted.differences
        assert len(counted.records) == self.published
        assert await self.pipeline.dead_letters() == []

    def formats(self) -> set[object]:
        store = self.pipeline.backend.store
        return {entity.properties["format"] for kind in (keys.SHARD, keys.SEGMENT) for entity in store.of_kind(kind)}  # type: ignore[attr-defined]  # the fake's


def test_a_rolling_upgrade_under_load_is_exact(tally_loop: VirtualLoop, next_version: dict[str, ModuleType]) -> None:
    """Workers first, one by one, then functions, as a deployment does."""

    async def main() -> None:
        fleet = Fleet(next_version, poll(partitions=4))
        await fleet.pipeline.prepare(fleet.made)
        fleet.start(next_version=False)
        fleet.start(next_version=False)
        await fleet.vote(10)
        assert fleet.formats() == {1}
        for _ in range(2):
            fleet.start(next_version=True)
            await fleet.vote(20)
            await fleet.stop_oldest()
        assert 2 in fleet.formats()
        await fleet.vote(20, next_version=True)
        await asyncio.sleep(120)
        while fleet._running:
            await fleet.stop_oldest()
        await fleet.judge()

    tally_loop.run(main())


def test_messages_of_a_later_version_wait_for_workers_of_it(
    tally_loop: VirtualLoop, next_version: dict[str, ModuleType]
) -> None:
    async def main() -> None:
        fleet = Fleet(next_version, poll(partitions=2))
        await fleet.pipeline.prepare(fleet.made)
        fleet.start(next_version=False)
        await fleet.vote(5)
        await fleet.vote(5, next_version=True)
        await asyncio.sleep(60)
        assert sum((await fleet.pipeline.totals(fleet.made)).values()) == 50
        fleet.start(next_version=True)
        await fleet.stop_oldest()
        await asyncio.sleep(60)
        while fleet._running:
            await fleet.stop_oldest()
        await fleet.judge()

    tally_loop.run(main())


def test_a_roll_back_under_load_loses_nothing(tally_loop: VirtualLoop, next_version: dict[str, ModuleType]) -> None:
    """What the later version wrote is left alone by the earlier, whose new partitions go on, until it comes again."""

    async def main() -> None:
        fleet = Fleet(next_version, poll(partitions=2))
        other = poll("other", partitions=1)
        await fleet.pipeline.prepare(fleet.made, other)
        fleet.start(next_version=True)
        await fleet.vote(10, next_version=True)
        await fleet.stop_oldest()
        before = {entity.key: entity.version for entity in fleet.pipeline.backend.store.of_kind(keys.SHARD)}  # type: ignore[attr-defined]  # the fake's
        fleet.start(next_version=False)
        await fleet.vote(30)
        await fleet.pipeline.publish(votes(other, range(50), fleet.pipeline.clock.now()))
        await asyncio.sleep(60)
        after = {entity.key: entity.version for entity in fleet.pipeline.backend.store.of_kind(keys.SHARD)}  # type: ignore[attr-defined]  # the fake's
        assert {key: after[key] for key in before} == before
        assert sum((await fleet.pipeline.totals(other)).values()) == 50
        fleet.start(next_version=True)
        await fleet.stop_oldest()
        await asyncio.sleep(120)
        while fleet._running:
            await fleet.stop_oldest()
        await fleet.judge()

    tally_loop.run(main())
