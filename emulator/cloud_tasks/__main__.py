"""`python -m emulator.cloud_tasks`: run the Cloud Tasks emulator until SIGINT or SIGTERM."""

import asyncio
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.console import Console

from emulator.cloud_tasks import view
from emulator.cloud_tasks.errors import ApiError
from emulator.cloud_tasks.server import Options, emulator
from tally import logs


@click.command(help="Run a Cloud Tasks emulator (gRPC and HTTP on one port) until SIGINT or SIGTERM.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8123, show_default=True, help="0 takes a free one")
@click.option("--project", default="tally-local", show_default=True, help="project of --queue and --queue-yaml")
@click.option("--location", default="us-central1", show_default=True, help="location of --queue and --queue-yaml")
@click.option("--queue", "queues", multiple=True, help="make this queue (its id) if it is missing; repeatable")
@click.option(
    "--queue-yaml", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="import App Engine's queue.yaml"
)
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="keep queues and tasks in this file")
@click.option(
    "--clock",
    type=click.Choice(["real", "manual"]),
    default="real",
    show_default=True,
    help="manual: stepped by POST /clock",
)
@click.option("--start", type=int, help="where a manual clock begins, µs since 1970 (default: now)")
@click.option(
    "--app-engine", default="http://127.0.0.1:8080", show_default=True, help="base URL that App Engine tasks go to"
)
@click.option(
    "--redirects/--no-redirects",
    "follow_redirects",
    default=True,
    show_default=True,
    help="follow those of HTTP targets",
)
@click.option("--ramp/--no-ramp", default=False, show_default=True, help="start new, idle and resumed queues slowly")
@click.option("--issuer", default="", help="issuer of OIDC tokens (default: the emulator's own URL)")
@click.option(
    "--view/--no-view", "show_view", default=None, help="live view of queues and dispatches (default: on a terminal)"
)
def main(show_view: bool | None, clock: str, **options: Any) -> None:
    chosen = Options(**options, manual_clock=clock == "manual")
    visible = sys.stdout.isatty() if show_view is None else show_view
    if not visible:
        logs.setup()  # the view shows what happens; without it, failed attempts are logged
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(chosen, visible))
    except (OSError, ValueError, sqlite3.Error, ApiError) as error:
        sys.exit(f"cloud-tasks emulator: {error}")


async def _run(options: Options, visible: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with emulator(options) as running, asyncio.TaskGroup() as group:
        click.echo(f"export CLOUD_TASKS_EMULATOR_HOST={running.address}")
        showing = group.create_task(view.show(running, Console())) if visible else None
        await stop.wait()
        if showing is not None:
            showing.cancel()


if __name__ == "__main__":
    main()
