"""The composition root: settings → backend → services. The one place that sees backends and services together."""

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from random import Random, SystemRandom
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit
from uuid import UUID

from tally import config, environment, logs
from tally.clock import Clock, Stamps, SystemClock
from tally.config import Settings
from tally.embedded.push import Sender
from tally.errors import ConfigError
from tally.finding import Finding
from tally.ports import Backend, CallerVerifier, Dispatcher, HttpTask
from tally.tasks import deferred
from tally.tasks.dispatch import StoreDispatcher
from tally.tasks.push import Target
from tally.tasks.push_loop import PushLoop
from tally.tasks.queues import PullQueues
from tally.tasks.system import TaskSystem
from tally.votes import checkup as checkups
from tally.votes import keyring
from tally.votes import purge as purging
from tally.votes import recount as recounting
from tally.votes.definitions import Definitions
from tally.votes.intake import Intake
from tally.votes.keyring import KeyRing
from tally.votes.known_polls import KnownPolls
from tally.votes.letterbox import Letterbox
from tally.votes.microbatch import MicroBatcher
from tally.votes.poll import Poll
from tally.votes.polls import Polls
from tally.votes.recount import Recount
from tally.votes.results import ResultsReader
from tally.votes.stream import Streams
from tally.votes.worker import Worker
from tally.web import health, metrics, outgoing, polls, queues, results, tasks, votes
from tally.web.app import App, Route
from tally.web.function import Function

if TYPE_CHECKING:
    from tally.metrics.telemetry import Telemetry


async def open_backend(settings: Settings) -> Backend:
    """Open the ports of the backend that the settings name; the import is lazy, so that embedded needs no google."""
    package = import_module("tally.embedded" if settings.backend == "embedded" else "tally.gcp")
    return cast(Backend, await package.open(settings))


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Backend]:
    """Open the backend for a while, and close it whatever happens."""
    backend = await open_backend(settings)
    try:
        yield backend
    finally:
        await backend.close()


def ballot_keys(settings: Settings) -> KeyRing:
    """Load the ballot keys; make the current one if it is missing, but never in the cloud: there, raise ConfigError."""
    if settings.backend != "cloud":
        keyring.make(settings.ballot_keys, settings.ballot_key)
    keys = keyring.load(settings.ballot_keys)
    if settings.ballot_key not in keys:
        raise ConfigError(f"TALLY_BALLOT_KEYS={settings.ballot_keys}: no key of version {settings.ballot_key!r} there")
    return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A web application and what it must put in order before the process ends."""

    app: App
    closers: tuple[Callable[[], Awaitable[None]], ...]

    async def close(self) -> None:
        """Publish what was taken, finish reads, close the clients."""
        for closer in self.closers:
            await closer()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What services take from outside beside the backend; tests give another one. `token` returns 16 random bytes."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    token: Callable[[], bytes] = field(default=partial(secrets.token_bytes, 16))


def telemetry(settings: Settings) -> "Telemetry":
    """Compose the metrics of this process. The import is lazy: only workers and `tally serve` pay for the SDK's."""
    from tally.metrics.telemetry import Telemetry

    return Telemetry(settings.metrics_exporters)


def metrics_routes(telemetry: "Telemetry") -> list[Route]:
    return metrics.routes(telemetry.text, telemetry.content_type)


def public_site(settings: Settings, backend: Backend, world: World, telemetry: "Telemetry | None" = None) -> Site:
    """Compose function `public`: votes in, polls and results out."""
    clock, random = world.clock, world.random
    definitions = Definitions(backend.store, clock, random, ballot_keys(settings))
    streams = _streams(settings)
    batcher = MicroBatcher(backend.publisher, clock, random, streams.linger_seconds)
    if telemetry is not None:
        telemetry.watch_intake(batcher)
    intake = Intake(definitions, batcher, Stamps(clock), streams, world.token)
    reader = ResultsReader(backend.store, definitions, clock)
    routes = [
        *votes.routes(intake),
        *polls.public_routes(definitions, clock),
        *results.routes(reader, clock),
        *health.routes(batcher),
    ]
    return Site(app=App(routes), closers=(batcher.close, definitions.close, backend.close))


def admin_site(settings: Settings, backend: Backend, world: World) -> Site:
    """Compose function `admin`: polls made, listed, changed, closed, deleted."""
    return Site(app=App([*admin_routes(settings, backend, world), *health.routes(None)]), closers=(backend.close,))


def whole_site(
    settings: Settings,
    backend: Backend,
    world: World,
    system: TaskSystem | None = None,
    telemetry: "Telemetry | None" = None,
) -> Site:
    """Compose all functions on one address, for local work; what several have, the last one serves."""
    public = public_site(settings, backend, world, telemetry)
    pushed = [] if system is None else tasks.routes(system.receiver())
    measured = [] if telemetry is None else metrics_routes(telemetry)
    routes = [*public.app.routes, *admin_routes(settings, backend, world), *pushed, *measured]
    return Site(app=App(routes), closers=public.closers)


def admin_routes(settings: Settings, backend: Backend, world: World) -> list[Route]:
    keyring.check_version(settings.ballot_key)
    service = _polls(settings, backend, world)
    return [*polls.admin_routes(service, world.clock), *queues.routes(pull_queues(backend, world))]


def _polls(settings: Settings, backend: Backend, world: World) -> Polls:
    return Polls(backend.store, world.clock, world.random, settings.ballot_key)


def pull_queues(backend: Backend, world: World) -> PullQueues:
    """Compose the pull queues of the store, by name."""
    return PullQueues(backend.store, clock=world.clock, random=world.random)


def vote_worker(settings: Settings, backend: Backend, world: World) -> Worker:
    """Compose the worker of the votes; call it on the event loop that it will run on."""
    return Worker(
        backend.store,
        backend.puller(settings.channel(settings.stream).subscription),
        backend.publisher,
        dead_letter_topic=settings.dead_letter_topic,
        clock=world.clock,
        random=world.random,
        memory=settings.ledger_memory_bytes,
    )


def letterbox(settings: Settings, backend: Backend) -> Letterbox:
    """Compose what reads, replays and drops dead letters."""
    puller = backend.puller(settings.dead_letter_subscription)
    return Letterbox(puller, backend.publisher, _streams(settings), KnownPolls(backend.store))


def _streams(settings: Settings) -> Streams:
    return Streams(tuple(settings.channel(stream).topic for stream in range(settings.streams)))


async def checkup(environ: Mapping[str, str], world: World, *, read_only: bool) -> list[Finding]:
    """Look at everything that a set-up needs, and return what was found; what cannot be reached ends the round."""
    findings = environment.examine(environ)
    if any(finding.level == "wrong" for finding in findings):
        return findings
    settings = config.load(environ)
    if settings.backend != "cloud" or environ.get("TALLY_BALLOT_KEYS"):  # in the cloud only some processes have them
        made_here = settings.backend != "cloud"
        findings.append(checkups.ballot_keys(settings.ballot_keys, settings.ballot_key, made_here=made_here))
    package = import_module("tally.embedded.checkup" if settings.backend == "embedded" else "tally.gcp.checkup")
    found = await package.examine(settings)
    findings += found
    if any(finding.level == "wrong" for finding in found) or not package.has_store(settings):
        return findings
    async with opened(settings) as backend:
        if not read_only:
            findings.append(await checkups.guard_probe(backend.store, UUID(bytes=world.token())))
            findings += await checkups.left_streams(
                lambda stream: backend.puller(settings.channel(stream).subscription),
                settings.streams,
                made_here=settings.backend != "cloud",
            )
        findings.append(await checkups.clock(backend.store, world.clock))
    return findings


async def purge(settings: Settings, poll_id: str) -> int:
    """Remove the ledger of a poll deleted long ago; return how many entities went."""
    world = World()
    async with opened(settings) as backend:
        poll = await _polls(settings, backend, world).get(poll_id)
        return await purging.purge(backend.store, poll, world.clock.now())


async def recount(settings: Settings, poll_id: str, progress: Callable[[int], None]) -> tuple[Poll, Recount]:
    """Count a poll from its ledger; `progress` is told the number of partitions after each."""
    async with opened(settings) as backend:
        poll = await _polls(settings, backend, World()).get(poll_id)
        return poll, await recounting.recount(backend.store, poll, progress=progress)


async def open_tasks(settings: Settings, backend: Backend, world: World) -> TaskSystem:
    """Import the modules with task functions, and connect these to their queues. Raises ConfigError."""
    for module in settings.task_modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(f"TALLY_TASK_MODULES: {module} cannot be imported: {error}") from error
    url = urlsplit(settings.run_task_url)
    dispatcher, verifier, account = await _push_ports(settings, backend, world)
    system = TaskSystem(
        deferred.registry,
        backend.store,
        clock=world.clock,
        random=world.random,
        dispatcher=dispatcher,
        target=Target(url=settings.run_task_url, audience=f"{url.scheme}://{url.netloc}"),
        verifier=verifier,
        callers=frozenset({account}),
        pushed=frozenset(settings.push_queues),
        send=partial(_send, settings),
    )
    deferred.registry.connect(system.tasks)
    return system


@asynccontextmanager
async def task_queues(
    environ: Mapping[str, str] | None = None, *, telemetry: "Telemetry | None" = None
) -> AsyncIterator[TaskSystem]:
    """Connect the task functions of this program to their queues for a while, by the environment's settings."""
    settings = config.load(os.environ if environ is None else environ)
    async with opened(settings) as backend:
        ports = backend if telemetry is None else telemetry.timed(backend)
        system = await open_tasks(settings, ports, World())
        try:
            yield system
        finally:
            deferred.registry.connect(None)
            await system.close()


async def _push_ports(
    settings: Settings, backend: Backend, world: World
) -> tuple[Dispatcher | None, CallerVerifier | None, str]:
    """Return what pushes, what verifies whoever pushes, and the account that may."""
    if not settings.push_queues:
        return None, None, ""
    if settings.backend == "embedded":
        return StoreDispatcher(backend.store, world.clock), None, ""
    ports: tuple[Dispatcher, CallerVerifier, str] = await import_module("tally.gcp").open_push(settings)
    return ports


async def _send(settings: Settings, task: HttpTask) -> int:
    """Send a request that is too large for Cloud Tasks, with the token that it would have got."""
    wanted = bool(task.audience) and settings.backend == "cloud"
    token = await import_module("tally.gcp").identity_token(task.audience) if wanted else ""
    return await outgoing.send(task, token)


def push_loop(settings: Settings, backend: Backend, world: World, system: TaskSystem) -> PushLoop:
    """Compose what sends embedded's push tasks; one process at a time does."""
    receiver = system.receiver()
    target = Target(url=settings.run_task_url).of("")
    sender = Sender(target, partial(tasks.received, receiver), outgoing.send)
    return PushLoop(backend.store, sender.send, clock=world.clock, random=world.random)


async def run_task_site(settings: Settings, backend: Backend, world: World) -> Site:
    """Compose function `run_task`: what Cloud Tasks pushes is run."""
    system = await open_tasks(settings, backend, world)
    routes = [*tasks.routes(system.receiver()), *health.routes(None)]
    return Site(app=App(routes), closers=(system.close, backend.close))


def start(environ: Mapping[str, str]) -> None:
    """Do what a function's process does first: set up logs, and fail now if it could not take votes later."""
    logs.setup()
    settings = config.load(environ)
    if environ.get("FUNCTION_TARGET", "public") == "public":
        ballot_keys(settings)


async def _app(compose: Callable[[Settings, Backend, World], Site]) -> App:
    settings = config.load(os.environ)
    return compose(settings, await open_backend(settings), World()).app


async def _run_task_app() -> App:
    settings = config.load(os.environ)
    return (await run_task_site(settings, await open_backend(settings), World())).app


public = Function(partial(_app, public_site))
admin = Function(partial(_app, admin_site))
run_task = Function(_run_task_app)
