"""`tally worker`: counts votes until it is told to stop; its state is on a port."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import click
import uvicorn

from tally import bootstrap, config, logs
from tally.cli.console import run
from tally.cli.serve import listen
from tally.votes.worker import Health
from tally.web import health
from tally.web.app import App

HEALTH_SECONDS = 30


@click.command()
@click.option("--host", default="0.0.0.0", show_default=True, help="Address of /live and /health.")
@click.option("--port", envvar="PORT", default=8081, show_default=True, show_envvar=True, help="0 takes a free one.")
@click.option("--until-empty", is_flag=True, help="End when nothing is left: 0, or 3 if only what must wait came.")
@click.option("--verbose", is_flag=True, help="Log the id of each message pulled.")
def worker(host: str, port: int, until_empty: bool, verbose: bool) -> None:
    """Pull votes, count them, acknowledge them, until SIGTERM or SIGINT.

    \b
    Example:
      tally worker --port 0 --until-empty
    """
    logs.setup("DEBUG" if verbose else "INFO")
    sys.exit(run(_work(host, port, until_empty)))


async def _work(host: str, port: int, until_empty: bool) -> int:
    settings = config.load(os.environ)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop, stop, number)
    backend = await bootstrap.open_backend(settings)
    try:
        await backend.prepare()
        worker = bootstrap.vote_worker(settings, backend, bootstrap.World())
        async with (
            _state_on_port(App(health.worker_routes(worker)), host, port),
            _beside(log_ill_health(worker.health)),
        ):
            return await worker.run(stop, until_empty=until_empty)
    finally:
        await backend.close()


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


def _stop(stop: asyncio.Event, number: int) -> None:
    logs.event("stopping", signal=signal.Signals(number).name)
    stop.set()


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
