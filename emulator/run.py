"""`make run`: the backend, both functions on one port and a worker, until interrupted."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import click

from emulator import google
from emulator.local import BackendChoice, backend_option, heed_signals, local
from emulator.port import in_use
from emulator.process import StartError
from tally import config

# All but what is one process's own.
_SETTINGS = [each.name for each in config.VARIABLES if each.name not in ("TALLY_STREAM", "TALLY_TOKEN")]
_FOLDERS = {"TALLY_BALLOT_KEYS", "TALLY_STATE"}
_TRY = """\
Make a poll, vote, and read the result:

  curl {url}/v1/polls -H 'Content-Type: application/json' \\
    -d '{{"id":"lunch","title":"Lunch?","options":[{{"id":"soup","label":"Soup"}},{{"id":"salad","label":"Salad"}}]}}'
  curl {url}/v1/polls/lunch/votes -H 'Content-Type: application/json' -d '{{"option":"soup","voter":"v-1"}}'
  curl {url}/v1/polls/lunch/results
"""


@click.command()
@backend_option
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=Path(".tally"),
    show_default=True,
    envvar="TALLY_STATE",
    show_envvar=True,
)
@click.option("--port", default=8080, show_default=True, help="Port of the functions; 0 takes a free one.")
@click.option("--streams", type=click.IntRange(1, 8), default=1, show_default=True, help="Each has a worker.")
def main(backend: str, state: Path, port: int, streams: int) -> None:
    """Keep Tally running on this machine, until SIGINT or SIGTERM."""
    if port and in_use(port):
        raise click.ClickException(f"port {port} is in use: make run ARGS='--port 0' takes a free one")
    heed_signals()
    try:
        _run(cast(BackendChoice, backend), state, port, streams)
    except (google.Missing, StartError) as error:
        raise click.ClickException(str(error)) from error


def _run(backend: BackendChoice, state: Path, port: int, streams: int) -> None:
    with (
        contextlib.suppress(KeyboardInterrupt),
        local(backend, state, streams=streams) as here,
        here.started(here.serve(port)) as serve,
        contextlib.ExitStack() as stack,
    ):
        workers = [stack.enter_context(here.started(here.worker(stream=stream))) for stream in range(streams)]
        click.echo(f"backend   {here.backend}")
        for name, value in shared(here.environ, f"http://{serve.address}").items():
            click.echo(f"          {name}={value}")
        click.echo(f"function  http://{serve.address}")
        for worker in workers:
            click.echo(f"worker    http://{worker.address}/health")
        click.echo(f"logs      {here.logs}\n")
        click.echo(_TRY.format(url=f"http://{serve.address}"))
        while serve.running and all(worker.running for worker in workers):
            time.sleep(0.5)
        raise click.ClickException(f"a process ended by itself: see {here.logs}")


def shared(environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the settings by which commands in another shell, in whatever folder, meet on this backend."""
    given = {name: environ[name] for name in _SETTINGS if environ.get(name)}
    folders = {name: str(Path(given[name]).resolve()) for name in _FOLDERS & given.keys()}
    return {**given, **folders, "TALLY_URL": url, "TALLY_RUN_TASK_URL": url}


if __name__ == "__main__":
    main()
