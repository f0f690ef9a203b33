"""A process of ours, and waiting for what it says."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.process import spawn

START_SECONDS = 30


@contextmanager
def running(
    command: list[str], environment: Mapping[str, str], log: Path, *, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run it in a process group of its own, which is killed at the end if it is still there."""
    with log.open("wb") as out:
        process = spawn(command, environ=environment, folder=folder, log=out)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(ready: Callable[[], Any], what: str, log: Path) -> Any:
    """Ask again until the answer is true, and return it; fail with the process's log after START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        answer = ready()
        if answer:
            return answer
        time.sleep(0.05)
    return pytest.fail(f"{what} within {START_SECONDS} s; the log says:\n{log.read_text()}")
