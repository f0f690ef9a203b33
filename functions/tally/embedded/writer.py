"""The one thread of a process that writes. Whatever waits when its turn comes shares one transaction and one sync.

A group that fails as a whole is answered as a whole; one operation that is refused leaves the others alone. Statements
are few and wide on purpose: each gives the interpreter's lock away, and getting it back from a busy event loop can
take 5 ms.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from tally.clock import Clock
from tally.embedded.failure import translate
from tally.embedded.file import Connection, File
from tally.embedded.turn import Turn
from tally.errors import BackendError, Rejected, Unavailable
from tally.limits import EMBEDDED_GROUP_WRITES, EMBEDDED_WAITING_WRITES

T = TypeVar("T")
Row = tuple[int | str | bytes, ...]

ANSWER_SECONDS = 8.0
HOUSEKEEPING_SECONDS = 60.0
TRIES_ON_A_FULL_DISK = 8
_CHUNKS = (1_024, 128, 16, 1)
_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")  # the latter by a quota or a process's limit


class Transaction:
    """One transaction of the file, with its time in µs and the file's counter."""

    def __init__(self, connection: sqlite3.Connection, now: int, counter: int) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.now = now
        self.counter = counter
        self.subscriptions: dict[str, list[int]] = {}
        self._later: dict[str, list[Row]] = {}

    def next(self) -> int:
        """Return a number that was never given before."""
        self.counter += 1
        return self.counter

    def insert_later(self, table: str, row: Row) -> None:
        """Insert a row at the end of the transaction, many a statement."""
        self._later.setdefault(table, []).append(row)

    def flush(self) -> None:
        for table, rows in self._later.items():
            start = 0
            for size in _CHUNKS:
                values = ",".join([f"({','.join('?' * len(rows[0]))})"] * size)
                while len(rows) - start >= size:
                    flat = [value for row in rows[start : start + size] for value in row]
                    self.execute(f"INSERT INTO {table} VALUES {values}", flat)
                    start += size


class _Job(NamedTuple):
    operation: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    since: float


class _Outcome(NamedTuple):
    job: _Job
    value: object
    error: BackendError | None


class Writer:
    """Belongs to the event loop that makes it."""

    def __init__(self, file: File, clock: Clock, housekeeping: Callable[[Transaction], None]) -> None:
        self._file = file
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._housekeeping = _Job(housekeeping, self._loop.create_future(), 0.0)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._waiting: deque[_Job] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False
        self._process = os.getpid()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="tally-writer", daemon=True)
        self._thread.start()

    async def run(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation in a transaction; return its value once that is durable.

        The operation runs in the writer's thread, makes no change before it raises, and raises only BackendErrors of
        its own. Raises those, and Unavailable when the file fails or gives no answer within ANSWER_SECONDS.
        """
        self._check_open()
        if len(self._waiting) >= EMBEDDED_WAITING_WRITES:
            raise Unavailable(
                f"{self._file.path}: {EMBEDDED_WAITING_WRITES} writes wait already", status="RESOURCE_EXHAUSTED"
            )
        job = _Job(operation, self._loop.create_future(), self._loop.time())
        self._waiting.append(job)
        self._queue.put(job)
        if self._watch is None:
            self._watch = self._loop.call_later(1.0, self._fail_overdue)
        value: T = await job.future
        return value

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"{self._file.path} is closed", status="CLOSED")
        if os.getpid() != self._process:
            raise Unavailable(f"{self._file.path} was opened before a fork: open it in the child", status="FORKED")

    async def close(self) -> None:
        """Finish what waits, then close; gives up after ANSWER_SECONDS on a file that does not answer."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join, ANSWER_SECONDS)
        await asyncio.sleep(0)  # the thread's last answers are callbacks of this loop
        self._fail_older_than(float("inf"))
        if self._watch is not None:
            self._watch.cancel()

    def _fail_overdue(self) -> None:
        """Give up what has no answer in time: a stopped process can hold the file's lock for ever."""
        self._fail_older_than(self._loop.time() - ANSWER_SECONDS)
        self._watch = self._loop.call_later(1.0, self._fail_overdue) if self._waiting else None

    def _fail_older_than(self, limit: float) -> None:
        while self._waiting and (self._waiting[0].future.done() or self._waiting[0].since < limit):
            future = self._waiting.popleft().future
            if not future.done():
                message = f"{self._file.path}: no answer in {ANSWER_SECONDS} s; another process may hold its lock"
                future.set_exception(Unavailable(message, status="DEADLINE_EXCEEDED"))

    def _settle(self, outcomes: Sequence[_Outcome]) -> None:
        for job, value, error in outcomes:
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(value)
            else:
                job.future.set_exception(error)
        while self._waiting and self._waiting[0].future.done():
            self._waiting.popleft()

    def _run(self) -> None:
        turn: Turn | None = None
        kept_at = float("-inf")
        while (jobs := self._next_jobs()) is not None:
            try:
                turn = turn or Turn(self._file.path)
                with turn.taken():
                    jobs += self._more_jobs(len(jobs))
                    outcomes = self._write(jobs)
                    if self._loop.time() > kept_at + HOUSEKEEPING_SECONDS:
                        kept_at = self._loop.time()
                        self._write([self._housekeeping])
                    if self._file.short_of_room():
                        self._fold()
            except Exception as error:
                outcomes = [_Outcome(job, None, translate(error, self._file.path)) for job in jobs]
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for an answer
                self._loop.call_soon_threadsafe(self._settle, outcomes)
            if turn is not None and self._connection is None:  # the file may be another one now, and so its locks
                turn.close()
                turn = None
        self._disconnect()
        if turn is not None:
            turn.close()

    def _next_jobs(self) -> list[_Job] | None:
        """Wait for work; return none after a pause, for the housekeeping, and None at the end."""
        try:
            job = self._queue.get(timeout=HOUSEKEEPING_SECONDS)
        except Empty:
            return []
        return None if job is None else [job]

    def _more_jobs(self, have: int) -> list[_Job]:
        jobs: list[_Job] = []
        with contextlib.suppress(Empty):
            while have + len(jobs) < EMBEDDED_GROUP_WRITES:
                job = self._queue.get_nowait()
                if job is None:
                    self._queue.put(None)
                    break
                jobs.append(job)
        return jobs

    def _write(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        """Run jobs in one transaction; where that fails for its size or a value, each in one of its own."""
        jobs = [job for job in jobs if not job.future.done()]
        try:
            return self._transact(jobs) if jobs else []
        except Exception as error:
            failure = translate(error, self._file.path)
            self._roll_back(failure)
            if len(jobs) > 1 and (isinstance(failure, Rejected) or failure.status == "SQLITE_FULL"):
                return self._write_apart(jobs)
            return [_Outcome(job, None, translate(error, self._file.path)) for job in jobs]

    def _write_apart(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        """Write each job in a transaction of its own; on a disk that takes nothing, give up after a few."""
        outcomes: list[_Outcome] = []
        failures = 0
        for number, job in enumerate(jobs):
            outcomes += self._write([job])
            error = outcomes[-1].error if outcomes else None
            failures = failures + 1 if isinstance(error, Unavailable) else 0
            if isinstance(error, Unavailable) and failures == TRIES_ON_A_FULL_DISK:
                rest = jobs[number + 1 :]
                return outcomes + [
                    _Outcome(each, None, Unavailable(error.message, status=error.status)) for each in rest
                ]
        return outcomes

    def _transact(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        connection = self._connection = self._connection or self._file.connect()
        self._file.check(connection)
        connection.execute("BEGIN IMMEDIATE")
        counter = connection.execute("SELECT value FROM counter").fetchone()[0]
        transaction = Transaction(connection, self._clock.now(), counter)
        outcomes = []
        for job in jobs:
            try:
                outcomes.append(_Outcome(job, job.operation(transaction), None))
            except BackendError as error:
                outcomes.append(_Outcome(job, None, error))
        transaction.flush()
        if transaction.counter != counter:
            connection.execute("UPDATE counter SET value = ?", (transaction.counter,))
        connection.execute("COMMIT")
        return outcomes

    def _roll_back(self, failure: BackendError) -> None:
        """Undo; after an error of the disk go on with a new connection: the old one may hold pages that are not so."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if failure.status in _NO_ROOM:
            self._fold()
        if isinstance(failure, Unavailable) and failure.status not in ("SQLITE_FULL", "SQLITE_BUSY"):
            self._disconnect()

    def _fold(self) -> None:
        """Take the log into the file, so that its room is used anew and it takes none that the file needs to grow."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
