"""The checks of a deployment run: here against the local server and worker, with tools that say what is asked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.process import running, until
from tests.infra.terraform import ROOT

TALLY = str(Path(sys.executable).with_name("tally"))
# What a machine without the cloud cannot show: IAM before the functions, and two functions on two addresses.
ONLY_IN_THE_CLOUD = "admin_asks or no_admin_route"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a gcloud and a terraform that know one deployment, on port 1 until it is told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "gcloud").write_text(
        '#!/bin/sh\ncase "$*" in *print-identity-token*) echo token;; *worker-started*) echo worker-started;; esac\n'
    )
    (folder / "terraform").write_text(f"#!/bin/sh\ncat {tmp_path / 'outputs.json'}\n")
    for tool in folder.iterdir():
        tool.chmod(0o755)
    return folder


def test_they_pass_on_the_local_backend(tools: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path / "state")}
    serve, work = tmp_path / "serve.log", tmp_path / "worker.log"
    with (
        running([TALLY, "serve", "--port", "0"], environment, serve),
        running([TALLY, "worker", "--host", "127.0.0.1", "--port", "0"], environment, work),
    ):
        url = _address(serve)
        outputs = {"admin_url": url, "public_url": url, "workers": ["tally-worker"]}
        (tmp_path / "outputs.json").write_text(json.dumps({name: {"value": value} for name, value in outputs.items()}))
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/cloud", "-k", f"not ({ONLY_IN_THE_CLOUD})"],
            cwd=ROOT,
            env={**os.environ, "PATH": path, "PROJECT": "tally-local"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr + work.read_text()
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def _address(log: Path) -> str:
    found = until(lambda: re.search(r"http://\S+", log.read_text()), "did not say its address", log)
    address: str = found[0]
    return address
