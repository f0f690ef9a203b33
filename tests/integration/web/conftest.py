"""Functions as real processes under the plain Functions Framework, and a client of raw sockets."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from emulator.port import free_port
from emulator.process import spawn, stop
from tally import bootstrap, config
from tally.cli.console import run
from tests.conftest import Hosts

BIN = Path(sys.executable).parent


class Reply(NamedTuple):
    status: int
    headers: str
    body: str


class Served(NamedTuple):
    """A function that runs. `process` leads a group of its own."""

    process: "subprocess.Popen[bytes]"
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def send(self, request: bytes) -> Reply:
        """Send bytes as they are; return what comes back until the answer is whole."""
        with self.connect() as connection:
            connection.sendall(request)
            return read(connection)

    def call(self, method: str, path: str, body: str = "", **headers: str) -> Reply:
        given = {"content-type": "application/json", **headers} if body else headers
        lines = [f"{method} {path} HTTP/1.1", "host: x", f"content-length: {len(body.encode())}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
        return self.send(("\r\n".join(lines) + "\r\n\r\n" + body).encode())


def read(connection: socket.socket) -> Reply:
    """Read one answer that says its length."""
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = connection.recv(65_536)
        if not chunk:
            raise ConnectionError(f"the server hung up after {received!r}")
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    headers = head.decode().lower()
    length = int(headers.partition("content-length: ")[2].partition("\r\n")[0] or 0)
    while len(body) < length:
        body += connection.recv(65_536)
    return Reply(int(head.split()[1]), headers, body.decode())


Serve = Callable[..., Served]


@contextmanager
def served(target: str, environ: Mapping[str, str]) -> Iterator[Served]:
    """Run a target under the Functions Framework until the end of the block."""
    port = free_port()
    command = [BIN / "functions-framework", "--source", "functions/main.py", "--target", target, "--port", str(port)]
    process = spawn([str(part) for part in command], environ={**os.environ, **environ})
    try:
        function = Served(process, port)
        _wait(function)
        yield function
    finally:
        stop(process)


def _wait(function: Served) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and function.process.poll() is None:
        try:
            if function.call("GET", "/live").status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the function does not answer")


@pytest.fixture
def embedded(tmp_path: Path) -> dict[str, str]:
    """Give the settings of a prepared embedded backend."""
    environ = {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path / "state")}
    prepare(environ)
    return environ


@pytest.fixture
def emulated(emulators: Hosts, tmp_path: Path) -> dict[str, str]:
    """Give the settings of prepared emulators, in a project of the test's own."""
    project = f"web-{time.time_ns()}"
    environ = {
        "TALLY_BACKEND": "emulator",
        "TALLY_PROJECT": project,
        "TALLY_STATE": str(tmp_path / "state"),
        **emulators("firestore-mode"),
    }
    prepare(environ)
    return environ


def prepare(environ: Mapping[str, str]) -> None:
    async def work() -> None:
        backend = await bootstrap.open_backend(config.load(environ))
        await backend.prepare()
        await backend.close()

    run(work())


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as running:
        yield lambda target, environ: running.enter_context(served(target, environ))
