"""`tally worker`: counts votes until it is told to stop; its state is on a port."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, NoReturn

import click
import uvicorn

from tally import bootstrap, collector, config, logs
from tally.cli.console import Whole, import_from_here, run
from tally.cli.serve import listen
from tally.clock import SystemClock
from tally.config import Settings
from tally.errors import BackendError, ConfigError
from tally.limits import STREAMS
from tally.ports import Puller
from tally.tasks import deferred
from tally.tasks.pace import Bounds
from tally.tasks.pool_worker import THREADS
from tally.votes import checkup
from tally.votes.worker import EMPTY_FOR, Health
from tally.web import health
from tally.web.app import App

HEALTH_SECONDS = 30
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
CONCURRENCY = "4:100"


@click.command()
@click.option("--host", default="0.0.0.0", show_default=True, help="Address of /live, /health and /metrics.")
@click.option("--port", envvar="PORT", default=8081, show_default=True, show_envvar=True, help="0 takes a free one.")
@click.option(
    "--until-empty",
    is_flag=True,
    help=f"End when nothing is left, no vote for {EMPTY_FOR:g} s: 0, or 3 if only what must wait came.",
)
@click.option("--stream", type=Whole(0, STREAMS - 1), help="Pull this stream, instead of TALLY_STREAM's.")
@click.option("--queue", "queues", multiple=True, metavar="NAME[=WEIGHT]", help="Run this queue's tasks, not votes.")
@click.option("--strict", is_flag=True, help="Take from a lighter queue only what the heavier ones leave.")
@click.option("--concurrency", show_default=CONCURRENCY, metavar="MIN:MAX", help="Tasks at a time.")
@click.option("--verbose", is_flag=True, help="Log the id of each message pulled.")
def worker(
    host: str,
    port: int,
    until_empty: bool,
    stream: int | None,
    queues: tuple[str, ...],
    strict: bool,
    concurrency: str | None,
    verbose: bool,
) -> None:
    """Pull votes, count them, acknowledge them, until SIGTERM or SIGINT; or run the tasks of pull queues.

    Tasks that run have five seconds then; a second signal gives them back to their queues at once.

    \b
    Examples:
      tally worker --port 0 --until-empty
      TALLY_STREAMS=2 tally worker --stream 1
      TALLY_TASK_MODULES=shop.tasks tally worker --queue high=4 --queue low
    """
    logs.setup("DEBUG" if verbose else "INFO")
    if queues and stream is not None:
        raise click.UsageError("--stream is of votes and --queue of tasks: a worker takes one or the other")
    if not queues and (strict or concurrency is not None):
        raise click.UsageError("--strict and --concurrency are of tasks: name their queues by --queue")
    if queues:
        bounds = _bounds(concurrency or CONCURRENCY)
        _leave(run(_run_tasks(host, port, until_empty, _weights(queues), bounds, strict)))
    sys.exit(run(_work(host, port, until_empty, stream)))


async def _run_tasks(
    host: str, port: int, until_empty: bool, weights: dict[str, int], bounds: Bounds, strict: bool
) -> int:
    import_from_here()
    at_once = asyncio.Event()
    stop = stopped_by_signals(at_once)
    with contextlib.closing(bootstrap.telemetry(config.load(os.environ))) as telemetry:
        async with bootstrap.task_queues(telemetry=telemetry) as system:
            telemetry.watch_tasks(deferred.registry, weights)
            executor = system.executor(weights, bounds=bounds, strict=strict)
            telemetry.watch_queues(executor, SystemClock())
            app = App([*health.routes(None), *bootstrap.metrics_routes(telemetry)])
            async with (
                _state_on_port(app, host, port),
                _beside(system.sweeper(weights).run()),
                _beside(telemetry.run()),
            ):
                return await executor.run(stop, at_once=at_once, until_empty=until_empty)


def _leave(code: int) -> NoReturn:
    """Exit, at once if a task still runs in a thread: it cannot be stopped, and has been given back to its queue."""
    if any(thread.name.startswith(THREADS) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _weights(queues: tuple[str, ...]) -> dict[str, int]:
    weights = {}
    for text in queues:
        name, _, weight = text.partition("=")
        if not (weight or "1").isascii() or not (weight or "1").isdigit() or name in weights:
            raise click.BadParameter(f"{text!r}: want NAME or NAME=WEIGHT, each name once", param_hint="--queue")
        weights[name] = int(weight or 1)
    return weights


def _bounds(text: str) -> Bounds:
    least, _, most = text.partition(":")
    if not least.isdigit() or not (most or least).isdigit():
        raise click.BadParameter(f"{text!r}: want MIN:MAX", param_hint="--concurrency")
    return Bounds(at_least=int(least), at_most=int(most or least))


async def _work(host: str, port: int, until_empty: bool, stream: int | None) -> int:
    settings = config.load(os.environ)
    if stream is not None:
        settings = replace(settings, stream=stream)
    if not until_empty:
        warn_of_idle_stream(settings)
    stop = stopped_by_signals()
    with contextlib.closing(bootstrap.telemetry(settings)) as telemetry:
        async with bootstrap.opened(settings) as backend:
            await backend.prepare()
            await refuse_absent_stream(settings, backend.puller(settings.channel(settings.stream).subscription))
            logs.event("worker-pulls", subscription=settings.channel(settings.stream).subscription)
            worker = bootstrap.vote_worker(settings, telemetry.timed(backend), bootstrap.World())
            telemetry.watch_worker(worker)
            app = App([*health.worker_routes(worker), *bootstrap.metrics_routes(telemetry)])
            async with (
                _state_on_port(app, host, port),
                _beside(log_ill_health(worker.health)),
                _beside(telemetry.run()),
            ):
                collector.spare()
                return await worker.run(stop, until_empty=until_empty)


def warn_of_idle_stream(settings: Settings) -> None:
    """Say in the log that nobody publishes to the stream that is pulled, by the settings that functions have too."""
    if settings.stream >= settings.streams:
        logs.event(
            "stream-gets-no-votes",
            level=logging.WARNING,
            stream=settings.stream,
            streams=settings.streams,
            hint=f"with TALLY_STREAMS={settings.streams} votes go to streams below {settings.streams}: raise it, for"
            " the functions too; or take what is left of this stream with --until-empty",
        )


async def refuse_absent_stream(settings: Settings, puller: Puller) -> None:
    """Raise ConfigError for a stream that nobody publishes to and that is not there: it is mistyped, or taken away."""
    if settings.stream < settings.streams:
        return
    with contextlib.suppress(BackendError):  # the worker waits for an outage to end
        if await checkup.waits(puller) is None:
            raise ConfigError(
                f"there is no stream {settings.stream}, and with TALLY_STREAMS={settings.streams} votes go to streams"
                f" below {settings.streams}: pull one of these, or raise TALLY_STREAMS, for the functions too"
            )


async def log_ill_health(health: Callable[[], Health]) -> None:
    """Say in the log what `/health` would while it is 503: a worker pool has no address that an alert could ask."""
    while True:
        await asyncio.sleep(HEALTH_SECONDS)
        state = health()
        if not state.ok:
            logs.event("worker-unhealthy", level=logging.ERROR, state=state.body)


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def stopped_by_signals(at_once: asyncio.Event | None = None) -> asyncio.Event:
    """Return what SIGTERM or SIGINT sets; a second one sets `at_once`, where it is given, and a third one kills."""
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _stop, stop, at_once, number)
    return stop


def _stop(stop: asyncio.Event, at_once: asyncio.Event | None, number: int) -> None:
    name = signal.Signals(number).name
    if not stop.is_set() or at_once is None:
        logs.event("stopping", signal=name)
        stop.set()
        return
    logs.event("stopping-at-once", signal=name)
    at_once.set()
    for each in _SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(each)
        signal.signal(each, signal.SIG_DFL)


class _Server(uvicorn.Server):
    """Leaves the signals to the worker."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _state_on_port(app: App, host: str, port: int) -> AsyncIterator[None]:
    listener = listen(host, port)
    server = _Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    logs.event("worker-listens", port=listener.getsockname()[1])
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        await serving
