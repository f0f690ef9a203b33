import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from emulator import run


def test_another_shell_is_told_all_that_its_commands_need(tmp_path: Path) -> None:
    environ = {
        "HOME": "/home/ann",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "TALLY_BACKEND": "emulator",
        "TALLY_PROJECT": "another",
        "TALLY_STATE": str(tmp_path),
        "TALLY_STREAM": "1",
        "TALLY_STREAMS": "2",
        "TALLY_TOKEN": "secret",
    }
    assert run.shared(environ, "http://127.0.0.1:8091") == {
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "TALLY_BACKEND": "emulator",
        "TALLY_PROJECT": "another",
        "TALLY_STATE": str(tmp_path),
        "TALLY_STREAMS": "2",
        "TALLY_URL": "http://127.0.0.1:8091",
        "TALLY_RUN_TASK_URL": "http://127.0.0.1:8091",
    }


def test_the_state_is_named_so_that_a_shell_in_another_folder_finds_it() -> None:
    environ = {"TALLY_BACKEND": "embedded", "TALLY_STATE": ".tally", "TALLY_BALLOT_KEYS": "keys"}
    named = run.shared(environ, "http://127.0.0.1:8080")
    assert named["TALLY_STATE"] == str(Path.cwd() / ".tally")
    assert named["TALLY_BALLOT_KEYS"] == str(Path.cwd() / "keys")


def test_a_port_that_is_in_use_is_refused_before_anything_starts_and_the_way_out_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = CliRunner().invoke(run.main, ["--state", str(tmp_path), "--port", str(port)])
    assert (ended.exit_code, ended.output) == (
        1,
        f"Error: port {port} is in use: make run ARGS='--port 0' takes a free one\n",
    )
    assert not list(tmp_path.iterdir())


def test_the_backend_and_the_state_are_the_shell_s_unless_an_option_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell = {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path)}
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    assert run.main.make_context("run", []).params.items() >= {"backend": "embedded", "state": tmp_path}.items()
    assert run.main.make_context("run", ["--backend", "auto"]).params["backend"] == "auto"
