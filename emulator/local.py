"""The product on this machine: a backend, the functions and the workers as real processes. For `run` and `demo`."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Literal, get_args

import click

from emulator import google
from emulator.launch import stack
from emulator.process import Process, Program

BackendChoice = Literal["auto", "emulator", "embedded"]
backend_option = click.option(
    "--backend",
    type=click.Choice(get_args(BackendChoice)),
    default="auto",
    show_default=True,
    envvar="TALLY_BACKEND",
    show_envvar=True,
)
_ROOT = Path(__file__).resolve().parents[1]
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A running backend. `environ` is what each process of the product needs to meet on it."""

    backend: str
    environ: Mapping[str, str]
    logs: Path

    def function(self, target: str) -> Program:
        """Serve a function target as Google Cloud does: by the plain Functions Framework."""
        source = str(_ROOT / "functions/main.py")
        return Program(
            name=f"function-{target}",
            command=lambda port: [
                str(_BIN / "functions-framework"),
                *("--target", target, "--source", source, "--host", "127.0.0.1", "--port", str(port)),
            ],
            ready_path="/live",
            environ={**self.environ, "FUNCTION_TARGET": target},
        )

    def serve(self, port: int = 0, *options: str) -> Program:
        """Serve both targets on one port; 0 takes a free one."""
        return replace(self._tally("serve", "serve", *options, "--port"), port=port)

    def worker(self, *options: str, stream: int = 0) -> Program:
        return self._tally("worker", "worker", "--host", "127.0.0.1", "--stream", str(stream), *options, "--port")

    def _tally(self, name: str, *arguments: str) -> Program:
        return Program(
            name=name,
            command=lambda port: [str(_BIN / "tally"), *arguments, str(port)],
            ready_path="/live",
            environ=self.environ,
        )

    @contextlib.contextmanager
    def started(self, program: Program) -> Iterator[Process]:
        """Run one process of the product until the block is left."""
        process = Process(program, self.logs)
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.stop()


def heed_signals() -> None:
    """Let SIGTERM and SIGINT end a command by KeyboardInterrupt, so that all it started is stopped.

    SIGINT too: a shell starts what it puts in the background deaf to it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def local(choice: BackendChoice, state: Path, *, streams: int = 1) -> Iterator[Local]:
    """Run a backend; `auto` takes Google's emulators or, where they are not installed, embedded, and says so.

    Its processes publish to so many streams; each wants a worker.
    """
    logs = state / "logs"
    environ = {**os.environ, "TALLY_STATE": str(state), "TALLY_STREAMS": str(streams)}
    with contextlib.ExitStack() as leaving:
        hosts: Mapping[str, str] = {}
        if choice != "embedded":
            try:
                hosts = leaving.enter_context(stack(environ=os.environ, log_dir=logs)).hosts
            except google.Missing as missing:
                if choice == "emulator":
                    raise
                sys.stderr.write(f"backend: embedded ({missing})\n")
        backend = "emulator" if hosts else "embedded"
        yield Local(backend=backend, environ={**environ, **hosts, "TALLY_BACKEND": backend}, logs=logs)
