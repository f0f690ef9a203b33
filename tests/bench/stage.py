"""What every section stands on: emulators, settings with fresh names, polls, messages ready to publish."""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, TypeVar
from uuid import uuid4

import msgspec

from emulator.local import Local
from tally import bootstrap, config
from tally.config import Settings
from tally.ports import Backend, Outgoing, Upsert, read
from tally.votes import batch, keys, ledger
from tally.votes.batch import Vote
from tally.votes.poll import Option, Poll
from tally.votes.polls import to_entity
from tally.votes.worker import Worker
from tests.bench.measure import Run

T = TypeVar("T")

OPTIONS = ("red", "green", "blue", "black", "white")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`scale` shrinks the numbers of votes; `repetitions` is how often contenders take turns."""

    here: Local
    scale: float
    repetitions: int

    @property
    def quick(self) -> bool:
        """Tell whether this is a look at what budgets hold: figures that none holds may be left out."""
        return self.repetitions == 1

    def votes(self, number: int, least: int = 1_000) -> int:
        return max(least, int(number * self.scale))

    def environ(self) -> dict[str, str]:
        """Return settings whose topics and subscriptions nobody used yet."""
        name = f"bench-{uuid4().hex[:8]}"
        return {
            **self.here.environ,
            "TALLY_PROJECT": self.here.environ.get("TALLY_PROJECT", "tally-local"),
            "TALLY_TOPIC": name,
            "TALLY_SUBSCRIPTION": name,
            "TALLY_DEAD_LETTER_TOPIC": f"{name}-dead",
            "TALLY_DEAD_LETTER_SUBSCRIPTION": f"{name}-dead",
        }

    def settings(self) -> Settings:
        return config.load(self.environ())

    def local(self, environ: Mapping[str, str]) -> Local:
        return Local(backend=self.here.backend, environ=environ, logs=self.here.logs)


async def opened(settings: Settings) -> Backend:
    backend = await bootstrap.open_backend(settings)
    await backend.prepare()
    return backend


async def make_poll(backend: Backend, partitions: int = 16) -> Poll:
    options = tuple(Option(id=option, label=option) for option in OPTIONS)
    poll = Poll(
        id=f"b{uuid4().hex[:12]}", title="", options=options, created_at=0, partitions=partitions, key_version="1"
    )
    await backend.store.commit([Upsert(to_entity(poll))])
    return poll


def make_votes(poll: Poll, numbers: Iterable[int]) -> list[Vote]:
    now = time.time_ns() // 1_000
    return [
        Vote(poll.id, OPTIONS[number % len(OPTIONS)], blake2b(b"%d" % number, digest_size=16).digest(), now)
        for number in numbers
    ]


def pack(votes: Sequence[Vote], size: int) -> list[Outgoing]:
    """Pack votes into messages of `size` votes, as the function does."""
    attributes = {"v": str(batch.VERSION)}
    return [Outgoing(batch.encode(votes[start : start + size]), attributes) for start in range(0, len(votes), size)]


async def publish(backend: Backend, topic: str, messages: Sequence[Outgoing]) -> None:
    part, size = list[Outgoing](), 0
    for message in messages:
        if len(part) == 1_000 or size + len(message.data) > 5_000_000:
            await backend.publisher.publish(topic, part)
            part, size = [], 0
        part.append(message)
        size += len(message.data)
    if part:
        await backend.publisher.publish(topic, part)


async def counted(backend: Backend, poll: Poll) -> int:
    found, _ = await read(backend.store, [keys.shard(poll.id, number) for number in range(poll.partitions)])
    return sum(ledger.parse_shard(entity).ballots for entity in found.values())


async def until(ready: Callable[[], Awaitable[bool]], *, pause: float = 0.05, seconds: float = 120) -> None:
    """Wait until it is so, looking again and again; raise TimeoutError when it takes too long."""
    async with asyncio.timeout(seconds):
        while True:
            if await ready():
                return
            await asyncio.sleep(pause)


class Watch:
    """Times a stretch of this process's work on some votes."""

    def __init__(self, votes: int) -> None:
        self._votes = votes
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> Run:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Run(self._votes / wall, cpu / self._votes * 1e6)


async def settled(worker: Worker, messages: int, *, seconds: float = 120) -> None:
    """Wait until a worker has settled so many messages."""

    async def done() -> bool:
        # More, where some came again.
        return msgspec.convert(worker.health().body["settled"], int) >= messages

    await until(done, pause=0.005, seconds=seconds)


def alone(work: Callable[..., T], *arguments: object) -> T:
    """Do the work in a process of its own, whose memory is its own; from a thread, as this waits."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_answer, args=(theirs, work, arguments))
    child.start()
    theirs.close()  # a child that dies must end the wait for its answer
    answer: T = ours.recv()
    child.join()
    return answer


def _answer(pipe: Connection, work: Callable[..., object], arguments: Sequence[object]) -> None:
    pipe.send(work(*arguments))


def memory(field: Literal["VmRSS", "VmHWM"]) -> int:
    """Return the bytes that this process has in memory, or had at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1_024
    raise LookupError(field)


def machine() -> str:
    """Say in a line what was measured on."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown processor",
    )
    return f"{os.cpu_count()} cores of {cpu}"
