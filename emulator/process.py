"""One server as a child process: its own process group, a log file, a free port, readiness, and a certain end.

The group is killed as a whole, by a watcher too when this process dies: a server that outlives its run would meet the
next one with old data.
"""

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from emulator.port import free_port, listens

READY_SECONDS = 60.0
STOP_SECONDS = 10.0
# Runs a command with a watcher beside it, in a session of its own, so that it is not frozen with the group: once nobody
# holds the other end of its input, it kills the group. A line says that there is nothing left to watch.
_WATCHED = """
exec 3<&0
setsid sh -c 'read -r _ <&3 || kill -s KILL -- "-$0"' $$ </dev/null >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
"""


class StartError(Exception):
    """A server did not come up; the message has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`command` makes the arguments for a port; `GET ready_path` answers 200 once it is ready.

    An emulator's address goes into the environment variable `variable`. `environ` None: that of this process. `port` 0:
    a free one.
    """

    name: str
    command: Callable[[int], Sequence[str]]
    variable: str = ""
    ready_path: str = "/"
    environ: Mapping[str, str] | None = None
    port: int = 0


class Process:
    """A started server. `address` is host:port."""

    def __init__(self, program: Program, log_dir: Path) -> None:
        self._port = port = program.port or free_port()
        log_dir.mkdir(parents=True, exist_ok=True)
        self.program = program
        self.address = f"127.0.0.1:{port}"
        self.log = log_dir / f"{program.name}-{port}.log"
        with self.log.open("ab") as log:  # a second start on the same port must not empty the first one's log
            self._log_from = log.tell()
            self._child = spawn(program.command(port), environ=program.environ, log=log)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def wait_until_ready(self) -> None:
        """Return once it answers 200, and not some other server on its port.

        Raises StartError when the process ends or READY_SECONDS pass first.
        """
        limit = time.monotonic() + READY_SECONDS
        while time.monotonic() < limit:
            if not self.running:
                raise StartError(f"{self.program.name} ended with {self._child.returncode}:\n{self._end_of_log()}")
            if _answers(self.address, self.program.ready_path) and listens(self._child.pid, self._port):
                return
            time.sleep(0.05)
        raise StartError(f"{self.program.name} is not ready after {READY_SECONDS:.0f} s:\n{self._end_of_log()}")

    def wait(self, seconds: float) -> int | None:
        """Wait until it ends by itself; return its exit code, or None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(seconds)
        return None

    def stop(self) -> None:
        stop(self._child)

    def signal(self, number: int) -> None:
        """Send a signal to the whole group: SIGSTOP freezes it, SIGCONT lets it go on."""
        _signal_group(self._child, number)

    def kill(self) -> None:
        """Send SIGKILL, as a machine that dies would."""
        _signal_group(self._child, signal.SIGKILL)
        self._child.wait()

    def _end_of_log(self) -> str:
        return self.log.read_bytes()[self._log_from :].decode(errors="replace")[-2_000:]


def spawn(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    log: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command as the leader of its own process group, all of which is killed when this process dies (on Linux).

    The kernel could do that to the leader only: the workers that it forks would live on.
    """
    watched = ["sh", "-c", _WATCHED, "sh"] if shutil.which("setsid") else []
    there, here = os.pipe()
    try:
        child = subprocess.Popen(
            [*watched, *command],
            cwd=folder,
            env=environ,
            stdin=there,
            stdout=log,
            stderr=log and subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        os.close(here)
        raise
    finally:
        os.close(there)
    weakref.finalize(child, _release, here)
    return child


def _release(watcher: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(watcher, b"\n")
    os.close(watcher)


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command such that the kernel kills it when the process dies that starts it (on Linux).

    Start it from the main thread: the kernel takes the end of the calling thread for the end of the parent.
    """
    guard = shutil.which("setpriv")
    return [*([guard, "--pdeathsig", "KILL", "--"] if guard else []), *command]


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a process group that `spawn` made: SIGTERM, then SIGKILL after STOP_SECONDS or once its leader is gone."""
    _signal_group(child, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(STOP_SECONDS)
    _signal_group(child, signal.SIGKILL)
    child.wait()


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _answers(address: str, path: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
