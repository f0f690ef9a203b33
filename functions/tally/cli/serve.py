"""`tally serve`: both functions on one port, for local work."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from types import FrameType

import click
import uvicorn

from tally import bootstrap, config, logs
from tally.cli.console import import_from_here, run
from tally.errors import ConfigError
from tally.tasks import deferred


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, help="Port to listen on; 0 takes a free one.")
@click.option("--reuse-port", is_flag=True, help="Share the port with others started so: Linux spreads connections.")
def serve(host: str, port: int, reuse_port: bool) -> None:
    """Serve the public and the admin routes on one port, until interrupted.

    \b
    Examples:
      tally serve --port 0
      tally serve --reuse-port & tally serve --reuse-port
    """
    logs.setup()
    run(_serve(host, port, reuse_port))


async def _serve(host: str, port: int, reuse_port: bool) -> None:
    settings = config.load(os.environ)
    if settings.backend == "cloud":
        raise ConfigError("TALLY_BACKEND=cloud: `tally serve` opens the admin routes to all; deploy the functions")
    import_from_here()
    listener = listen(host, port, reuse_port=reuse_port)
    telemetry = bootstrap.telemetry(settings)
    backend = telemetry.timed(await bootstrap.open_backend(settings))
    await backend.prepare()
    if settings.backend == "emulator" and "TALLY_RUN_TASK_URL" not in os.environ:
        settings = replace(settings, run_task_url=f"http://{host}:{listener.getsockname()[1]}")
    world = bootstrap.World()
    system = await bootstrap.open_tasks(settings, backend, world)
    telemetry.watch_tasks(deferred.registry, settings.push_queues)
    site = bootstrap.whole_site(settings, backend, world, system, telemetry)
    stop = asyncio.Event()
    beside = [asyncio.create_task(system.sweeper(()).run()), asyncio.create_task(telemetry.run())]
    pushing = None
    if settings.backend == "embedded" and settings.push_queues:
        pushing = asyncio.create_task(bootstrap.push_loop(settings, backend, world, system).run(stop))
    server = uvicorn.Server(uvicorn.Config(site.app, log_level="warning", access_log=False, lifespan="off"))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)  # the server handles them while it runs, then raises them again for these
    click.echo(f"Tally serves on http://{host}:{listener.getsockname()[1]} ({settings.backend})")
    try:
        await server.serve(sockets=[listener])
    finally:
        stop.set()
        for task in beside:
            task.cancel()
        if pushing is not None:
            await pushing
        await system.close()
        await site.close()
        telemetry.close()


def _ignore(number: int, frame: FrameType | None) -> None:
    """Let the process end by itself, in order."""


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, reuse_port=reuse_port)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from error
