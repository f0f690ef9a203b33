"""Any small server stands for an emulator here; the real ones are started under tests/integration."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulator import process
from emulator.launch import programs, run
from emulator.process import Program, StartError, spawn, stop

SERVER = Program(
    name="server",
    variable="SERVER_HOST",
    command=lambda port: [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)],
)


def alive(process: int) -> bool:
    """Tell whether a process runs; one that is dead but not yet reaped does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_dead(process: int) -> None:
    limit = time.monotonic() + 10
    while alive(process):
        assert time.monotonic() < limit, f"process {process} still runs"
        time.sleep(0.01)


def test_a_server_is_ready_when_it_answers_and_gone_when_the_block_is_left(tmp_path: Path) -> None:
    with run([SERVER, SERVER], log_dir=tmp_path) as (first, second):
        assert first.address != second.address
        assert first.running
        assert second.running
    assert not first.running
    assert not second.running
    assert "GET / HTTP" in first.log.read_text()


def test_a_server_that_ends_at_once_is_reported_with_its_log_and_its_neighbour_is_stopped(tmp_path: Path) -> None:
    broken = Program(name="broken", variable="X", command=lambda port: [sys.executable, "-c", "print('no disk')"])
    with pytest.raises(StartError, match=r"broken ended with 0:\nno disk"), run([SERVER, broken], log_dir=tmp_path):
        pytest.fail("a stack that is not whole was handed out")
    port = int(next(tmp_path.glob("server-*.log")).stem.removeprefix("server-"))
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


def test_what_an_earlier_server_wrote_to_the_log_is_not_reported(tmp_path: Path) -> None:
    def says(text: str) -> Program:
        return Program(name="p", command=lambda port: [sys.executable, "-c", f"print({text!r})"], port=1)

    with pytest.raises(StartError, match="it serves"), run([says("it serves")], log_dir=tmp_path):
        pytest.fail("it has ended")
    with pytest.raises(StartError, match=r"^p ended with 0:\nit fails\n$"), run([says("it fails")], log_dir=tmp_path):
        pytest.fail("it has ended")
    assert (tmp_path / "p-1.log").read_text() == "it serves\nit fails\n"


def test_waiting_gives_the_exit_code_or_none_while_it_runs(tmp_path: Path) -> None:
    with run([SERVER], log_dir=tmp_path) as (server,):
        assert server.wait(0.01) is None
        server.signal(signal.SIGTERM)
        assert server.wait(10) == -signal.SIGTERM


def test_stopping_takes_the_whole_group_also_the_child_of_a_wrapper_that_ignores_signals() -> None:
    script = """
import subprocess, sys, time
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
inner = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
inner.stdout.readline()
print(inner.pid, flush=True)
time.sleep(60)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    with child.stdout as out:
        inner = int(out.readline())
    stop(child)
    wait_until_dead(inner)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no setsid")
@pytest.mark.parametrize("frozen", [False, True])
def test_servers_and_what_they_forked_die_with_the_process_that_started_them(tmp_path: Path, frozen: bool) -> None:
    script = """
import subprocess, sys, time
from emulator.process import spawn
server = '''
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
'''
print(spawn([sys.executable, "-c", server], log=sys.stdout).pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path.cwd())
    assert parent.stdout is not None
    with parent.stdout as out:
        leader, worker = (int(out.readline()) for _ in range(2))
    assert alive(leader)
    assert alive(worker)
    if frozen:
        os.killpg(leader, signal.SIGSTOP)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until_dead(leader)
    wait_until_dead(worker)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no setsid")
def test_the_watcher_of_a_server_that_was_stopped_ends_with_it() -> None:
    child = spawn([sys.executable, "-c", "import time; time.sleep(60)"])
    (watcher,) = wait_for_children(child.pid)
    stop(child)
    assert child.returncode == -signal.SIGTERM
    del child
    wait_until_dead(watcher)


def wait_for_children(process: int) -> list[int]:
    limit = time.monotonic() + 10
    while not (children := Path(f"/proc/{process}/task/{process}/children").read_text().split()):
        assert time.monotonic() < limit, f"process {process} has no child"
        time.sleep(0.01)
    return [int(child) for child in children]


def test_an_emulator_whose_host_is_given_is_not_started() -> None:
    given = {
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "DATASTORE_EMULATOR_HOST": "127.0.0.1:2",
        "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:3",
    }
    assert programs("firestore", given) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whose port it is")
def test_another_server_on_the_port_is_not_taken_for_the_one_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = Program(name="sleeper", command=lambda port: [sys.executable, "-c", "import time; time.sleep(60)"])
    with run([SERVER], log_dir=tmp_path) as (other,):
        monkeypatch.setattr(process, "free_port", lambda: int(other.address.rpartition(":")[2]))
        monkeypatch.setattr(process, "READY_SECONDS", 0.5)
        with pytest.raises(StartError, match="sleeper is not ready"), run([sleeper], log_dir=tmp_path):
            pytest.fail("another server was taken for it")
