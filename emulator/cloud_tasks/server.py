"""Puts the emulator together and runs it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from aiohttp import web

from emulator.cloud_tasks import rpc, tokens
from emulator.cloud_tasks.api import CloudTasks
from emulator.cloud_tasks.clock import ManualClock
from emulator.cloud_tasks.control import Control
from emulator.cloud_tasks.dispatcher import Dispatcher
from emulator.cloud_tasks.faults import Faults
from emulator.cloud_tasks.front import Door, Front
from emulator.cloud_tasks.journal import SqliteJournal
from emulator.cloud_tasks.queue_yaml import read
from emulator.cloud_tasks.queues import Queues
from emulator.cloud_tasks.target import Target
from tally.clock import Clock, SystemClock
from tally.tasks.rate import Ramp

GRACE_SECONDS = 0.5  # for calls under way when the emulator ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`start`: where a manual clock begins (µs; None = the machine's time); `issuer` "" = the emulator's own URL."""

    host: str = "127.0.0.1"
    port: int = 0
    project: str = "tally-local"
    location: str = "us-central1"
    queues: tuple[str, ...] = ()
    queue_yaml: Path | None = None
    state: Path | None = None
    manual_clock: bool = False
    start: int | None = None
    app_engine: str = "http://127.0.0.1:8080"
    follow_redirects: bool = True
    ramp: bool = False
    issuer: str = ""

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.location}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started emulator. `address` is host:port."""

    address: str
    queues: Queues
    dispatcher: Dispatcher


@asynccontextmanager
async def emulator(options: Options) -> AsyncIterator[Running]:
    """Run the emulator until the block is left.

    Raises OSError (the port), sqlite3.Error or ValueError (the state file), ApiError (queue.yaml).
    """
    async with AsyncExitStack() as closing:  # what is pushed last is closed first
        listener = closing.enter_context(socket.create_server((options.host, options.port)))
        address = f"{options.host}:{listener.getsockname()[1]}"
        journal = SqliteJournal(options.state) if options.state else None
        if journal is not None:
            closing.callback(journal.close)
        clock = _clock(options, journal)
        if journal is not None:
            closing.callback(_keep_clock, clock, journal)
        queues = Queues(clock, random=SystemRandom(), journal=journal, ramp=Ramp() if options.ramp else None)
        _fill(queues, options, journal)
        signer = tokens.Tokens(lambda: _key(journal), options.issuer or f"http://{address}")
        faults = Faults()
        target = Target(follow_redirects=options.follow_redirects)
        dispatcher = Dispatcher(queues, target, faults, signer.authorization, app_engine=options.app_engine)
        api = CloudTasks(queues, dispatcher, faults)
        control = Control(api=api, queues=queues, dispatcher=dispatcher, faults=faults, tokens=signer, clock=clock)
        await _serve(closing, listener, control, api)
        closing.push_async_callback(dispatcher.close)
        dispatcher.start()
        yield Running(address=address, queues=queues, dispatcher=dispatcher)


async def _serve(closing: AsyncExitStack, listener: socket.socket, control: Control, api: CloudTasks) -> None:
    """Start gRPC and HTTP behind the listener."""
    runner = web.AppRunner(control.application(), access_log=None, handle_signals=False)
    closing.push_async_callback(runner.cleanup)
    await runner.setup()
    assert runner.server is not None
    grpc_server = rpc.server(api)
    door = Door(runner.server, grpc_server.add_insecure_port("127.0.0.1:0"))
    closing.push_async_callback(door.close)
    closing.push_async_callback(grpc_server.stop, GRACE_SECONDS)
    await grpc_server.start()
    front = await asyncio.get_running_loop().create_server(lambda: Front(door), sock=listener)
    closing.callback(front.close)


def _clock(options: Options, journal: SqliteJournal | None) -> Clock:
    machine = SystemClock()
    if not options.manual_clock:
        return machine
    kept = journal.meta("clock") if journal else None
    start = machine.now() if options.start is None else options.start
    return ManualClock(max(start, int(kept or 0)))


def _keep_clock(clock: Clock, journal: SqliteJournal) -> None:
    if isinstance(clock, ManualClock):
        journal.put_meta("clock", str(clock.now()).encode())


def _key(journal: SqliteJournal | None) -> bytes:
    """Return the signing key; kept with the state, so that tokens can be verified over a restart."""
    kept = journal.meta("key") if journal else None
    if kept is not None:
        return kept
    key = tokens.new_key()
    if journal is not None:
        journal.put_meta("key", key)
    return key


def _fill(queues: Queues, options: Options, journal: SqliteJournal | None) -> None:
    if journal is not None:
        queues.load(journal)
    if options.queue_yaml is not None:
        queues.import_yaml(read(options.queue_yaml.read_text(), options.parent))
    for name in options.queues:
        queues.ensure(f"{options.parent}/queues/{name}")
