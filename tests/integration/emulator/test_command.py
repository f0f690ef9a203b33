"""`python -m emulator` with the real emulators: what it starts is gone when it ends, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulator.process import guarded
from tests.conftest import Hosts

NAMES = ("CLOUD_TASKS_EMULATOR_HOST", "DATASTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST")
BARE = {name: value for name, value in os.environ.items() if name not in NAMES}
ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "emulator"]


@pytest.fixture(autouse=True)
def installed(emulators: Hosts) -> None:
    """Skip or fail where an emulator is not installed."""
    emulators("firestore-mode")


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


def wait_until_silent(addresses: list[str]) -> None:
    limit = time.monotonic() + 10
    while any(map(listens, addresses)):
        assert time.monotonic() < limit, f"one of {addresses} still listens"
        time.sleep(0.05)


@contextmanager
def up(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Run `up` in a scratch folder; yield it with what it exports, and end it if the test has not."""
    environ = {**BARE, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        guarded([*COMMAND, "up", *options]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=environ,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        exports = dict(line.removeprefix("export ").strip().split("=") for line in lines)
        try:
            yield process, exports
        finally:
            process.terminate()


def hosts(exports: Mapping[str, str]) -> list[str]:
    return [exports[name] for name in NAMES]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_up_stops_what_it_started_at_every_kind_of_end(tmp_path: Path, number: signal.Signals) -> None:
    with up(tmp_path) as (process, exports):
        assert all(map(listens, hosts(exports)))
        process.send_signal(number)
        code = process.wait(20)
        wait_until_silent(hosts(exports))
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)


def test_two_stacks_run_side_by_side_and_stopping_one_leaves_the_other(tmp_path: Path) -> None:
    with up(tmp_path) as (first, exports), up(tmp_path, "--flavour", "datastore") as (_, others):
        assert not set(hosts(exports)) & set(hosts(others))
        first.terminate()
        first.wait(20)
        wait_until_silent(hosts(exports))
        assert all(map(listens, hosts(others)))


def test_exec_gives_the_hosts_returns_the_exit_code_and_leaves_nothing(tmp_path: Path) -> None:
    script = f"import os; print(*(os.environ[name] for name in {NAMES})); raise SystemExit(7)"
    done = subprocess.run(
        [*COMMAND, "exec", "--flavour", "firestore", "--", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**BARE, "PYTHONPATH": str(ROOT)},
    )
    addresses = done.stdout.split()
    assert (done.returncode, len(addresses)) == (7, 3), done.stderr
    wait_until_silent(addresses)


def test_exec_uses_emulators_that_run_already_and_leaves_them_running(emulators: Hosts, tmp_path: Path) -> None:
    given = emulators("firestore-mode")
    script = "import os; print(os.environ['PUBSUB_EMULATOR_HOST'], os.environ['DATASTORE_EMULATOR_HOST'])"
    environ = {**BARE, **given, "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:1", "PYTHONPATH": str(ROOT)}
    command = [*COMMAND, "exec", "--", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path, env=environ)
    assert done.stdout.split() == [given["PUBSUB_EMULATOR_HOST"], given["DATASTORE_EMULATOR_HOST"]]
    assert all(map(listens, done.stdout.split()))


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    environ = {**BARE, **dict.fromkeys(NAMES, "127.0.0.1:1"), "PYTHONPATH": str(ROOT)}
    command = [*COMMAND, "exec", "--", "no-such-command"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env=environ)
    assert (done.returncode, done.stderr) == (1, "emulator: no-such-command: no such command\n")
