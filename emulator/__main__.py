"""`python -m emulator up` and `python -m emulator exec -- COMMAND`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import FrameType

import click

from emulator import google
from emulator.launch import FLAVOUR_VARIABLE, stack
from emulator.process import StartError

_flavour = click.option(
    "--flavour", type=click.Choice(google.FLAVOURS), default=google.DEFAULT, show_default=True, help="which Datastore"
)


class _Terminated(Exception):
    """SIGTERM has come."""


@click.group(help="Run Google's emulators for local work.")
def main() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts in the background deaf to it


@main.command()
@_flavour
def up(flavour: google.Flavour) -> None:
    """Start the emulators, print the exports that point at them, and run until SIGINT or SIGTERM."""
    with contextlib.suppress(KeyboardInterrupt, _Terminated), stack(flavour, environ=os.environ) as started:
        for name, host in started.hosts.items():
            click.echo(f"export {name}={host}")
        click.echo(f"export {FLAVOUR_VARIABLE}={flavour}")
        for process in started.processes:
            click.echo(f"# log of {process.program.name}: {process.log}", err=True)
        while True:
            time.sleep(0.5)
            for process in started.processes:
                if not process.running:
                    raise StartError(f"{process.program.name} ended by itself: see {process.log}")


@main.command("exec", context_settings={"ignore_unknown_options": True})
@_flavour
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(flavour: google.Flavour, command: tuple[str, ...]) -> None:
    """Run COMMAND with the emulators' host variables, stop them after it, and return its exit code."""
    with stack(flavour, environ=os.environ) as started:
        child = subprocess.Popen(command, env={**os.environ, **started.hosts, FLAVOUR_VARIABLE: flavour})
        try:
            code = child.wait()
        except KeyboardInterrupt:  # a terminal has sent it to the command too: let it end in its own way
            code = _end_of(child, patience=10)
        except _Terminated:
            code = _end_of(child, patience=0)
    sys.exit(code if code >= 0 else 128 - code)


def _end_of(child: subprocess.Popen[bytes], *, patience: float) -> int:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(patience)
    child.terminate()
    return child.wait()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


if __name__ == "__main__":
    try:
        main()
    except _Terminated:
        sys.exit(128 + signal.SIGTERM)
    except (google.Missing, StartError) as error:
        sys.exit(f"emulator: {error}")
    except FileNotFoundError as error:
        sys.exit(f"emulator: {error.filename}: no such command")
