"""Starts the emulators of the local stack together and stops them together."""

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator import google
from emulator.process import Process, Program

LOG_DIR = Path(".tally/emulator")
GOOGLES = frozenset({"PUBSUB_EMULATOR_HOST", "DATASTORE_EMULATOR_HOST"})
# Tells a command that runs on given emulators which Datastore it has: the test suites want each.
FLAVOUR_VARIABLE = "TALLY_EMULATOR_FLAVOUR"
VARIABLES = GOOGLES | {"CLOUD_TASKS_EMULATOR_HOST"}


@dataclass(frozen=True, slots=True)
class Stack:
    """`hosts` has one environment variable an emulator, with its host:port; `processes` those started here."""

    hosts: Mapping[str, str]
    processes: tuple[Process, ...]


def programs(
    flavour: google.Flavour, environ: Mapping[str, str], variables: Collection[str] = VARIABLES
) -> list[Program]:
    """Return what must be started: every emulator among `variables` whose host variable is not set already.

    Raises google.Missing when one is not installed.
    """
    wanted: dict[str, Callable[[], Program]] = {
        "PUBSUB_EMULATOR_HOST": google.pubsub,
        "DATASTORE_EMULATOR_HOST": lambda: google.datastore(flavour),
        "CLOUD_TASKS_EMULATOR_HOST": cloud_tasks,
    }
    return [wanted[variable]() for variable in sorted(variables) if not environ.get(variable)]


def cloud_tasks(*options: str) -> Program:
    """Return our own Cloud Tasks emulator, with further options of its command line."""
    command = [sys.executable, "-m", "emulator.cloud_tasks", "--no-view", *options]
    return Program(
        name="cloud-tasks",
        variable="CLOUD_TASKS_EMULATOR_HOST",
        command=lambda port: [*command, f"--port={port}"],
    )


@contextlib.contextmanager
def stack(
    flavour: google.Flavour = google.DEFAULT,
    *,
    environ: Mapping[str, str],
    log_dir: Path = LOG_DIR,
    variables: Collection[str] = VARIABLES,
) -> Iterator[Stack]:
    """Run the stack until the block is left; emulators that `environ` names are used as they are, and left running."""
    missing = programs(flavour, environ, variables)
    given = {name: environ[name] for name in sorted(variables) if environ.get(name)}
    with run(missing, log_dir=log_dir) as processes:
        hosts = given | {process.program.variable: process.address for process in processes}
        yield Stack(hosts, processes)


@contextlib.contextmanager
def run(wanted: Iterable[Program], *, log_dir: Path = LOG_DIR) -> Iterator[tuple[Process, ...]]:
    """Start programs side by side, wait until all are ready, and stop them when the block is left.

    Raises process.StartError when one does not come up.
    """
    with contextlib.ExitStack() as stopping:
        processes = []
        for program in wanted:
            process = Process(program, log_dir)
            stopping.callback(process.stop)
            processes.append(process)
        for process in processes:
            process.wait_until_ready()
        yield tuple(processes)
