"""The package by itself: unpacked into an empty folder, with nothing but its own requirements, every part runs."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emulator.port import free_port
from infra import package
from tests.infra.process import running, until
from tests.infra.terraform import ROOT, targets

SHUTDOWN_SECONDS = 8


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    package.write_source(folder / "functions.zip")
    with zipfile.ZipFile(folder / "functions.zip") as archive:
        archive.extractall(folder / "app")
    return folder / "app"


@pytest.fixture(scope="session")
def python(unpacked: Path) -> Path:
    """A Python with the package's requirements and nothing else: made anew when they change."""
    requirements = unpacked / "requirements.txt"
    key = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / ".venv-package" / key
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = str(folder / "bin" / "pip")
        options = ("--quiet", "--disable-pip-version-check", "--no-compile")
        subprocess.run([pip, "install", *options, "-r", str(requirements)], check=True, capture_output=True)
        (folder / "installed").touch()
    return folder / "bin" / "python"


def call(port: int, path: str, body: object = None) -> dict[str, Any] | None:
    """Return the JSON answer, None while nothing listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (urllib.error.URLError, ConnectionError) as error:
        if isinstance(error, urllib.error.HTTPError):
            raise
        return None


def entry() -> list[str]:
    """Return what the image runs: its entry in exec form, and the default command."""
    text = (ROOT / "infra" / "Dockerfile").read_text()
    lines = dict(re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE))
    return [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]


def test_a_vote_goes_through_every_part(unpacked: Path, python: Path, tmp_path: Path) -> None:
    ports = {name: free_port() for name in targets()}
    logs = {name: tmp_path / f"{name}.log" for name in (*ports, "worker")}
    environment = {
        "PATH": os.environ["PATH"],
        "TALLY_BACKEND": "embedded",
        "TALLY_STATE": str(tmp_path / "state"),
        "FUNCTION_USE_ASGI": "true",
    }
    framework = str(python.with_name("functions-framework"))
    with (
        ExitStack() as functions,
        running(_worker(python), environment, logs["worker"], folder=unpacked) as worker,
    ):
        for name in ports:
            command = _function(framework, name, ports)
            functions.enter_context(running(command, environment, logs[name], folder=unpacked))
        for name, port in ports.items():
            until(partial(call, port, "/live"), f"{name} did not answer", logs[name])
        # It makes the topic: until then a vote is a 503.
        until(lambda: '"worker-started"' in logs["worker"].read_text(), "did not start", logs["worker"])
        poll = {"id": "dish", "title": "Which?", "options": [{"id": "a", "label": "A"}, {"id": "b", "label": "B"}]}
        call(ports["admin"], "/v1/polls", poll)
        for _ in range(2):  # the second copy counts nothing
            assert call(ports["public"], "/v1/polls/dish/votes", {"option": "b", "voter": "v-1"})
        counted = until(
            lambda: (call(ports["public"], "/v1/polls/dish/results") or {}).get("total"), "no count", logs["worker"]
        )
        assert counted == 1
        _stops(worker, logs["worker"])


def _function(framework: str, target: str, ports: dict[str, int]) -> list[str]:
    return [framework, "--target", target, "--source", "main.py", "--host", "127.0.0.1", "--port", str(ports[target])]


def _worker(python: Path) -> list[str]:
    program, *words = entry()
    assert program == "python"
    return [str(python), *words, "--host", "127.0.0.1", "--port", "0"]


def _stops(worker: subprocess.Popen[bytes], log: Path) -> None:
    """SIGTERM reaches the process itself: it says so within a second, and ends well before it would be killed."""
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    until(lambda: '"stopping"' in log.read_text(), "did not say that it stops", log)
    assert time.monotonic() - began < 1
    assert worker.wait(SHUTDOWN_SECONDS) == 0


def test_the_image_runs_no_shell_and_no_root() -> None:
    text = (ROOT / "infra" / "Dockerfile").read_text()
    lines = text.splitlines()
    assert "ARG BASE=" in text
    assert "FROM ${BASE}" in lines
    user = next(number for number, line in enumerate(lines) if line.startswith("USER "))
    assert lines[user] not in ("USER root", "USER 0")
    assert user < next(number for number, line in enumerate(lines) if line.startswith("ENTRYPOINT "))
    assert not re.search(r"^(ENTRYPOINT|CMD) [^\[]", text, re.MULTILINE)
    assert entry()[:3] == ["python", "-m", "tally.cli"]
