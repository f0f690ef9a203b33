"""Streams on real backends: one is added while votes come in, and taken away once it is drained; no vote is lost."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from tally import bootstrap
from tally.clock import Stamps, SystemClock
from tally.config import Settings
from tally.ports import Backend
from tally.votes.definitions import Definitions
from tally.votes.intake import Cast, Intake
from tally.votes.keyring import KeyRing
from tally.votes.microbatch import MicroBatcher
from tally.votes.poll import Poll
from tally.votes.recount import recount
from tally.votes.stream import Streams
from tally.votes.worker import Worker
from tests.integration.votes.working import prepare
from tests.unit.votes.pipeline import ballots, poll

PHASE_VOTES = 150
pytestmark = pytest.mark.parametrize("settings", ["embedded", "emulator-datastore"], indirect=True)


class Function:
    """An instance that knows of so many streams."""

    def __init__(self, settings: Settings, backend: Backend, streams: int) -> None:
        clock, known = SystemClock(), Streams(tuple(settings.channel(stream).topic for stream in range(streams)))
        self.batcher = MicroBatcher(backend.publisher, clock, Random(), known.linger_seconds)
        self._definitions = Definitions(backend.store, clock, Random(), KeyRing({"1": b"k" * 32}))
        self._intake = Intake(self._definitions, self.batcher, Stamps(clock), known, lambda: bytes(16))

    async def vote(self, number: int) -> bytes:
        option = ("red", "blue")[number % 2]
        return (await self._intake.vote("p", Cast(option=option, voter=f"voter-{number}"), None)).ballot

    async def close(self) -> None:
        await self.batcher.close()
        await self._definitions.close()


class Running:
    """A worker of a stream, by the composition root."""

    def __init__(self, settings: Settings, backend: Backend, stream: int) -> None:
        self.worker: Worker = bootstrap.vote_worker(replace(settings, stream=stream), backend, bootstrap.World())
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.worker.run(self.stop))

    async def end(self) -> None:
        self.stop.set()
        assert await self.task == 0


async def cast(functions: list[Function], numbers: range) -> set[bytes]:
    """Cast votes by all functions in turn, each a second time by another one."""
    accepted = set()
    for start in range(0, len(numbers), 30):
        some = numbers[start : start + 30]
        votes = [functions[(number + again) % len(functions)].vote(number) for number in some for again in (0, 1)]
        accepted.update(await asyncio.gather(*votes))
        await asyncio.sleep(0.02)
    return accepted


async def ledger(backend: Backend, made: Poll) -> set[bytes]:
    counted = await recount(backend.store, made)
    assert not counted.differences
    return ballots(counted.records)


async def test_a_stream_is_added_under_load_and_taken_away_when_it_is_drained(
    settings: Settings, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As little as is safe: on the emulator, what a pull of the worker that ended was lent comes again after 10 s.
    monkeypatch.setattr("tally.votes.worker.EMPTY_FOR", 11 if settings.backend == "emulator" else 2)
    made = poll("p", partitions=4)
    await prepare(backend, made)
    numbers = [range(start, start + PHASE_VOTES) for start in range(0, 4 * PHASE_VOTES, PHASE_VOTES)]
    first = Running(settings, backend, 0)
    one = Function(settings, backend, 1)
    accepted = await cast([one], numbers[0])

    wider = await bootstrap.open_backend(replace(settings, streams=2))
    await wider.prepare()  # what is published to must be there, with its subscription, before a function names it
    await wider.close()
    second = Running(settings, backend, 1)
    two = Function(settings, backend, 2)
    accepted |= await cast([one, two], numbers[1])
    assert second.worker.health().body["stuck_seconds"] == 0
    await one.close()
    await second.end()  # what comes by stream 1 waits from here on
    accepted |= await cast([two], numbers[2])

    await two.close()
    one = Function(settings, backend, 1)
    accepted |= await cast([one], numbers[3])
    await one.close()
    left = bootstrap.vote_worker(replace(settings, stream=1), backend, bootstrap.World())
    assert await left.run(asyncio.Event(), until_empty=True) == 0
    assert int(str(left.health().body["settled"])) > 0
    assert list(await backend.puller(settings.channel(1).subscription).pull(1)) == []
    for _ in range(600):
        if len(counted := await ledger(backend, made)) >= len(accepted):
            break
        await asyncio.sleep(0.1)
    await first.end()
    assert counted == accepted
    assert len(accepted) == 4 * PHASE_VOTES
