"""`make run`: the backend, both functions on one port and a worker, until interrupted."""

import contextlib
import signal
import time
from pathlib import Path
from types import FrameType
from typing import cast

import click

from emulator.local import BackendChoice, local

_TRY = """\
Make a poll, vote, and read the result:

  curl {url}/v1/polls -H 'Content-Type: application/json' \\
    -d '{{"id":"lunch","title":"Lunch?","options":[{{"id":"soup","label":"Soup"}},{{"id":"salad","label":"Salad"}}]}}'
  curl {url}/v1/polls/lunch/votes -H 'Content-Type: application/json' -d '{{"option":"soup","voter":"v-1"}}'
  curl {url}/v1/polls/lunch/results
"""


@click.command()
@click.option("--backend", type=click.Choice(["auto", "emulator", "embedded"]), default="auto", show_default=True)
@click.option("--state", type=click.Path(path_type=Path), default=Path(".tally"), show_default=True)
def main(backend: str, state: Path) -> None:
    """Keep Tally running on this machine, until SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, _interrupt)
    with (
        contextlib.suppress(KeyboardInterrupt),
        local(cast(BackendChoice, backend), state) as here,
        here.started(here.serve()) as serve,
        here.started(here.worker()) as worker,
    ):
        click.echo(f"backend   {here.backend}")
        for name, value in here.environ.items():
            if name.endswith("_EMULATOR_HOST"):
                click.echo(f"          {name}={value}")
        click.echo(f"          TALLY_RUN_TASK_URL=http://{serve.address}")
        click.echo(f"function  http://{serve.address}")
        click.echo(f"worker    http://{worker.address}/health")
        click.echo(f"logs      {here.logs}\n")
        click.echo(_TRY.format(url=f"http://{serve.address}"))
        while serve.running and worker.running:
            time.sleep(0.5)
        raise click.ClickException(f"a process ended by itself: see {here.logs}")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
