"""A process on the embedded file, for tests that stop, kill and compare processes.

    python -m tests.integration.embedded.child publish|commit|flood|turns|fill|hold NAME [short]

It prints a line only for what is durable. Settings come from the environment. `short`: of room, whatever the disk says,
so that each write folds the log before it is answered.
"""

import asyncio
import os
import resource
import sys
import time
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from unittest import mock

from tally import config, embedded
from tally.embedded.backend import SqliteBackend
from tally.embedded.file import File
from tally.embedded.turn import Turn
from tally.embedded.writer import Transaction
from tally.errors import Unavailable
from tally.ports import Entity, Insert, Key, OnConflict, Outgoing, Update


async def publish(backend: SqliteBackend, name: str) -> None:
    """Publish from 20 callers at once, each message named; print each name once it is in."""

    async def caller(number: int) -> None:
        for place in count():
            text = f"{name}-{number}-{place}"
            await backend.publisher.publish("votes", [Outgoing(text.encode(), {})])
            say(text)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(caller(number))


async def commit(backend: SqliteBackend, name: str) -> None:
    """Write a log as the ledger does, an entry and the head in one commit; print each number once it is in."""
    head: Key = (("Head", name),)
    version = 0
    for number in count(1):
        entity = Entity(key=head, properties={"sequence": number})
        entry = Insert(Entity(key=(*head, ("Entry", number)), properties={"data": b"x" * 20_000}))
        first = Insert(entity)
        later = Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)
        version = (await backend.store.commit([first if number == 1 else later, entry])).versions[0]
        say(str(number))


async def flood(backend: SqliteBackend, name: str) -> None:
    """Write without a pause: of two callers one always waits while the other's transaction runs."""

    def write(transaction: Transaction) -> None:
        transaction.next()
        time.sleep(0.005)

    async def caller() -> None:
        while True:
            await backend.write(write)

    say("ready")
    async with asyncio.TaskGroup() as group:
        group.create_task(caller())
        group.create_task(caller())


async def turns(backend: SqliteBackend, name: str) -> None:
    """Write one after the other; print the file's counter after each, which every write of the others raises too."""
    for _ in count():
        say(str(await backend.write(Transaction.next)))


async def fill(backend: SqliteBackend, name: str) -> None:
    """Publish until the files may not grow, saying each failure; stop at the third in a row, go on once they may."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, most))
    failures = 0
    for place in count():
        text = f"{name}-{place}"
        try:
            await backend.publisher.publish("votes", [Outgoing(text.encode().ljust(20_000), {})])
        except Unavailable as error:
            say(f"! {error.status}")
            failures += 1
            if failures == 3:
                break
        else:
            say(text)
            failures = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    await backend.publisher.publish("votes", [Outgoing(b"after", {})])
    say("after")
    await backend.close()


def hold(state: Path, name: str) -> None:
    """Take the turn again and again without a pause, noting in a common file when it comes and when it goes."""
    turn = Turn(state / "tally.sqlite3")
    with (state / "turns").open("ab", buffering=0) as notes:
        while True:
            with turn.taken():
                notes.write(name.encode())
                time.sleep(0.001)
                notes.write(name.encode())


def say(text: str) -> None:
    """One write, so that a kill leaves whole lines."""
    os.write(1, text.encode() + b"\n")


async def main(role: str, name: str) -> None:
    backend = await embedded.open(config.load(os.environ))
    await backend.prepare()
    await {"publish": publish, "commit": commit, "flood": flood, "turns": turns, "fill": fill}[role](backend, name)


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(config.load(os.environ).state, sys.argv[2])
    with mock.patch.object(File, "short_of_room", lambda _: True) if sys.argv[3:] else nullcontext():
        asyncio.run(main(*sys.argv[1:3]))
