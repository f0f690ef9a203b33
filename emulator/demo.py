"""`make demo`: proves the count in front of your eyes, with real processes, a worker killed while it holds messages,
and votes sent again: before the kill, after it, and as new messages. Every option's count must equal what was sent.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import cast

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from emulator import google
from emulator.http_client import Connection
from emulator.local import BackendChoice, Local, backend_option, heed_signals, local
from emulator.process import Process, StartError
from tally import bootstrap, config, limits
from tally.clock import SystemClock
from tally.ports import Outgoing
from tally.votes import batch
from tally.votes.ballot import Hasher
from tally.votes.batch import Vote

POLL = "demo"
OPTIONS = ("red", "green", "blue")
SINGLE_VOTES = 20_000
CONNECTIONS = 64
KILL_FROM, KILL_TO = 0.2, 0.8


class Failed(Exception):
    """The demo did not prove what it is for."""


class Demo:
    """Votes are numbers: the number says the voter, the option, and whether and how it is sent again."""

    def __init__(self, here: Local, votes: int, progress: Progress, console: Console) -> None:
        self.here = here
        self.votes = votes
        self.duplicates = 0
        self.counted = 0
        self.killed_at = 0.0
        self.workers: list[Process] = []
        self._stream_of: dict[Process, int] = {}
        self._allowed = 0.5
        self._more_allowed = asyncio.Condition()
        self._progress = progress
        self._console = console
        self._sent_bar = progress.add_task("sent", total=votes, rate=0)
        self._counted_bar = progress.add_task("counted", total=votes, rate=0)
        self._sent = 0
        self._stack = ExitStack()
        self._random = Random(1)

    async def start_worker(self, stream: int) -> None:
        worker = Process(self.here.worker("--verbose", stream=stream), self.here.logs)
        self._stack.callback(worker.stop)
        self.workers.append(worker)
        self._stream_of[worker] = stream
        await asyncio.to_thread(worker.wait_until_ready)

    def close(self) -> None:
        self._stack.close()

    async def run(self, public: str) -> None:
        sending = asyncio.create_task(self._send_all(public))
        watching = asyncio.create_task(self._watch(public))
        try:
            await asyncio.wait_for(self._kill_one(), 120)
            await sending
            await self._send_again(public)
            await asyncio.wait_for(self._settle(), 60 + self.votes / 10_000)
        finally:
            sending.cancel()
            watching.cancel()

    async def counts(self, public: str) -> dict[str, int]:
        async with Connection(public) as connection:
            reply = await connection.request("GET", f"/v1/polls/{POLL}/results")
        return msgspec.convert(msgspec.json.decode(reply.body, type=dict[str, object])["counts"], dict[str, int])

    def expected(self) -> dict[str, int]:
        return {option: len(range(place, self.votes, len(OPTIONS))) for place, option in enumerate(OPTIONS)}

    def _jobs(self) -> Iterator[list[int]]:
        single = min(self.votes, SINGLE_VOTES)
        jobs = [[number] for number in range(single)]
        jobs += [list(range(start, min(start + 1_000, self.votes))) for start in range(single, self.votes, 1_000)]
        self._random.shuffle(jobs)
        return iter(jobs)

    async def _send_all(self, public: str) -> None:
        jobs = self._jobs()

        async def sender() -> None:
            async with Connection(public) as connection:
                for job in jobs:
                    async with self._more_allowed:
                        await self._more_allowed.wait_for(lambda: self._sent < self._allowed * self.votes)
                    self._sent += len(job)
                    await self._send(connection, job)
                    self._progress.advance(self._sent_bar, len(job))
                    again = [number for number in job if number % 40 == 0]
                    if again:
                        self.duplicates += len(again)
                        await self._send(connection, again)

        await asyncio.gather(*(sender() for _ in range(CONNECTIONS)))

    async def _send_again(self, public: str) -> None:
        """Some by HTTP, some as messages of their own, as a client's and Pub/Sub's retries would."""
        numbers = list(range(20, self.votes, 80))
        async with Connection(public) as connection:
            for start in range(0, len(numbers), 1_000):
                await self._send(connection, numbers[start : start + 1_000])
        messages = list(range(60, self.votes, 80))
        settings = config.load(self.here.environ)
        hasher = Hasher(bootstrap.ballot_keys(settings).get(settings.ballot_key), POLL)
        now = SystemClock().now()
        async with bootstrap.opened(settings) as backend:
            for start in range(0, len(messages), 100):
                votes = [
                    Vote(POLL, OPTIONS[number % len(OPTIONS)], hasher.ballot(f"voter-{number}"), now)
                    for number in messages[start : start + 100]
                ]
                await backend.publisher.publish(settings.topic, [Outgoing(batch.encode(votes), {})])
        self.duplicates += len(numbers) + len(messages)

    async def _send(self, connection: Connection, job: list[int]) -> None:
        votes = [{"option": OPTIONS[number % len(OPTIONS)], "voter": f"voter-{number}"} for number in job]
        body = msgspec.json.encode(votes[0] if len(votes) == 1 else {"votes": votes})
        for _ in range(20):
            try:
                reply = await connection.request("POST", f"/v1/polls/{POLL}/votes", body)
            except (OSError, EOFError):  # the server shut an idle connection: whether it took the vote is not known
                continue
            if reply.status == 202:
                return
            if reply.status != 503:
                raise Failed(f"a vote was answered with {reply.status}: {reply.body.decode()}")
            await asyncio.sleep(1)
        raise Failed("a vote was not taken in twenty tries")

    async def _watch(self, public: str) -> None:
        begun = time.monotonic()
        while True:
            self.counted = sum((await self.counts(public)).values())
            seconds = time.monotonic() - begun
            self._progress.update(self._sent_bar, rate=round(self._sent / seconds))
            self._progress.update(self._counted_bar, completed=self.counted, rate=round(self.counted / seconds))
            await asyncio.sleep(0.1)

    async def _kill_one(self) -> None:
        """Kill a worker that holds messages, between 20 and 80 % counted; sending waits for it."""
        idle = 0
        while True:
            await asyncio.sleep(0.01)
            share = self.counted / self.votes
            if share < KILL_FROM:
                continue
            if share >= KILL_TO:
                raise Failed("no worker could be killed before 80 % were counted")
            victim = await self._holder()
            if victim is None:
                idle += 1
                if idle % 50 == 0 and self._allowed < KILL_TO - 0.05:
                    await self._allow(self._allowed + 0.05)
                continue
            victim.kill()
            self.killed_at = time.monotonic()
            self._console.print(f"killed worker {victim.address} at {share:.0%} counted")
            await self._allow(2)
            await self.start_worker(self._stream_of[victim])
            return

    async def _allow(self, share: float) -> None:
        """Let the senders go on until this share of the votes is sent."""
        async with self._more_allowed:
            self._allowed = share
            self._more_allowed.notify_all()

    async def _holder(self) -> Process | None:
        """Return a worker that holds messages now."""
        for worker in self.workers:
            if worker.running and await self._held(worker):
                return worker
        return None

    async def _held(self, worker: Process) -> int:
        async with Connection(worker.address) as connection:
            reply = await connection.request("GET", "/health")
        return msgspec.convert(msgspec.json.decode(reply.body, type=dict[str, object])["held"], int)

    async def _settle(self) -> None:
        """Wait until all is counted, what the killed worker held has come again, and nobody holds anything."""
        while True:
            came_again = time.monotonic() > self.killed_at + limits.ACK_DEADLINE_SECONDS + 1
            if self.counted == self.votes and came_again and await self._holder() is None:
                return
            await asyncio.sleep(0.2)


def redelivered(logs: Iterable[Path]) -> int:
    """Return how many message ids were pulled by two workers, by their logs."""
    pullers = Counter(identity for log in logs for identity in set(pulled(log)))
    return sum(1 for workers in pullers.values() if workers > 1)


def pulled(log: Path) -> list[str]:
    """Return the message ids that a worker said it pulled; the last line may be cut short by its death."""
    ids: list[str] = []
    for line in log.read_bytes().splitlines():
        if b'"action":"pulled"' in line and line.endswith(b"}"):
            ids.extend(msgspec.convert(msgspec.json.decode(line)["ids"], list[str]))
    return ids


async def _demo(here: Local, votes: int, workers: int, streams: int, console: Console) -> dict[str, object]:
    columns = (
        TextColumn("{task.description:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>7,} votes/s"),
        TimeElapsedColumn(),
    )
    begun = time.monotonic()
    with Progress(*columns, console=console) as progress:
        demo = Demo(here, votes, progress, console)
        try:
            with here.started(here.function("admin")) as admin, here.started(here.function("public")) as public:
                await _make_poll(admin.address, votes)
                for number in range(max(workers, streams)):
                    await demo.start_worker(number % streams)
                sending_from = time.monotonic()
                await demo.run(public.address)
                counts = await demo.counts(public.address)
        finally:
            demo.close()
    expected = demo.expected()
    table = Table("option", "sent", "counted")
    for option, sent in expected.items():
        table.add_row(option, f"{sent:,}", f"{counts.get(option, 0):,}")
    console.print(table)
    seconds = time.monotonic() - sending_from
    return {
        "accepted": votes,
        "counted": sum(counts.values()),
        "exact": counts == expected,
        "duplicates_sent": demo.duplicates,
        "redelivered": redelivered(worker.log for worker in demo.workers),
        "workers_killed": 1,
        "backend": here.backend,
        "seconds": round(time.monotonic() - begun, 1),
        "votes_per_second": round(votes / seconds),
    }


async def _make_poll(admin: str, votes: int) -> None:
    poll = {
        "id": POLL,
        "title": "The demo's poll",
        "options": [{"id": option, "label": option.title()} for option in OPTIONS],
        "expected_votes": votes,
    }
    async with Connection(admin) as connection:
        reply = await connection.request("POST", "/v1/polls", msgspec.json.encode(poll))
    if reply.status != 201:
        raise Failed(f"the poll could not be made: {reply.status} {reply.body.decode()}")


@click.command()
@click.option("--votes", type=click.IntRange(1_000), default=100_000, show_default=True)
@click.option("--workers", type=click.IntRange(1, 8), default=2, show_default=True)
@backend_option
@click.option("--streams", type=click.IntRange(1, 8), default=1, show_default=True, help="Each has a worker at least.")
def main(votes: int, workers: int, backend: str, streams: int) -> None:
    """Count votes on this machine while a worker is killed; the last line is JSON, exit code 0 if it was exact."""
    console = Console(stderr=True)
    heed_signals()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tally-demo-") as state,
            local(cast(BackendChoice, backend), Path(state), streams=streams) as here,
        ):
            result = asyncio.run(_demo(here, votes, workers, streams, console))
    except (Failed, google.Missing, StartError) as error:
        raise click.ClickException(str(error)) from error
    except TimeoutError as error:
        raise click.ClickException("the votes were not counted in time") from error
    click.echo(msgspec.json.encode(result))
    sys.exit(0 if result["exact"] and result["redelivered"] else 1)


if __name__ == "__main__":
    main()
