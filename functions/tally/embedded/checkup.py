"""What `tally doctor` finds out about the file. It makes nothing that is not there."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tally.config import Settings
from tally.embedded.backend import FILE_NAME
from tally.embedded.failure import translate
from tally.embedded.file import LOG_BYTES_KEPT, File
from tally.embedded.turn import holders
from tally.errors import ConfigError
from tally.finding import Finding, note, ok, wrong

FREE_BYTES_WRONG = 100_000_000
FREE_BYTES_NOTE = 1_000_000_000


async def examine(settings: Settings) -> list[Finding]:
    """Look at the file, who may write to it, its disk, its log, and its subscriptions."""
    return await asyncio.to_thread(lambda: list(_examine(settings)))


def has_store(settings: Settings) -> bool:
    """Say whether there is a store to look into."""
    return (settings.state / FILE_NAME).exists()


def _examine(settings: Settings) -> Iterator[Finding]:
    file = File(path=settings.state / FILE_NAME, durability=settings.durability)
    if not has_store(settings):
        yield ok("file", f"{file.path} is not there yet: `tally serve` or `tally worker` makes it")
        return
    try:
        file.create()
        connection = file.connect()
    except ConfigError as error:
        yield wrong("file", error.message, "export TALLY_STATE=FOLDER")
        return
    except sqlite3.Error as error:
        yield wrong("file", translate(error, file.path).message, f"ls -l {settings.state}")
        return
    try:
        yield from _contents(file, settings, connection)
    except sqlite3.Error as error:
        yield wrong("file", translate(error, file.path).message, f"sqlite3 {file.path} .recover")
    finally:
        connection.close()
    yield from _turn(file)
    yield from _disk(file)


def _contents(file: File, settings: Settings, connection: sqlite3.Connection) -> Iterator[Finding]:
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict == "ok":
        yield ok("file", f"{file.path} is sound, {file.path.stat().st_size:,} bytes, durability {file.durability}")
    else:
        yield wrong("file", f"{file.path} is damaged: {verdict}", f"sqlite3 {file.path} .recover")
    for topic, subscription in settings.channels:
        row = connection.execute(
            "SELECT t.name, s.id FROM subscription s JOIN topic t ON t.id = s.topic WHERE s.name = ?", (subscription,)
        ).fetchone()
        if row is None and connection.execute("SELECT 1 FROM topic WHERE name = ?", (topic,)).fetchone():
            says = f"{subscription} does not exist, but its topic does: what is published to {topic} is lost"
            yield wrong("subscription", says, "tally serve  # makes it")
        elif row is None:
            yield ok("subscription", f"{subscription} is not there yet: `tally serve` or `tally worker` makes it")
        elif row[0] != topic:
            says = f"{subscription} is on topic {row[0]}, not {topic}: votes would never come"
            yield wrong("subscription", says, f"export TALLY_TOPIC={row[0]}")
        else:
            waiting = connection.execute("SELECT count(*) FROM delivery WHERE subscription = ?", (row[1],)).fetchone()
            yield ok("subscription", f"{subscription} on topic {topic}, {waiting[0]} messages wait or are held")


def _turn(file: File) -> Iterator[Finding]:
    """Tell of a process that is stopped with the turn to write in its hand."""
    for pid in sorted(holders(file.path)):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t"):
                says = f"process {pid} is stopped and keeps every other from writing to {file.path}"
                yield wrong("turn", says, f"kill -CONT {pid}")


def _disk(file: File) -> Iterator[Finding]:
    free = shutil.disk_usage(file.path.parent).free
    says = f"{free / 1e9:.1f} GB are free where {file.path} lies"
    mend = f"df -h {file.path.parent}"
    if free < FREE_BYTES_WRONG:
        yield wrong("disk", says, mend)
    else:
        yield note("disk", says, mend) if free < FREE_BYTES_NOTE else ok("disk", says)
    log = file.path.with_name(file.path.name + "-wal")
    if log.exists() and log.stat().st_size > 2 * LOG_BYTES_KEPT:
        says = f"{log} has {log.stat().st_size:,} bytes: some program holds an old state of the file open"
        yield note("log", says, f"fuser -v {file.path}")
