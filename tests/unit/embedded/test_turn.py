import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tally.embedded.turn import Turn

# Forks in its turn, says the child's number and is killed.
_FORKING = """
import os, signal, sys, time
from pathlib import Path
from tally.embedded.turn import Turn

with Turn(Path(sys.argv[1])).taken():
    if child := os.fork():
        print(child, flush=True)
    else:
        os.closerange(0, 3)
    time.sleep(60)
"""


def _wait_until_next_in_line(path: Path) -> None:
    """Return once somebody stands in the queue."""
    with Path(f"{path}-queue").open() as queue:
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            try:
                fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(queue, fcntl.LOCK_UN)
            time.sleep(0.001)
    raise AssertionError("nobody asks for the turn")


def test_who_asks_again_at_once_stands_behind_the_one_that_waits(tmp_path: Path) -> None:
    path = tmp_path / "file"
    greedy, patient = Turn(path), Turn(path)
    order = []

    def wait() -> None:
        with patient.taken():
            order.append("patient")

    for _ in range(20):
        with greedy.taken():
            waiting = threading.Thread(target=wait)
            waiting.start()
            _wait_until_next_in_line(path)
        with greedy.taken():
            order.append("greedy")
        waiting.join()
    assert order == ["patient", "greedy"] * 20
    greedy.close()
    patient.close()


def test_a_child_of_a_fork_does_not_keep_the_turn_of_a_parent_that_died_in_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with subprocess.Popen([sys.executable, "-c", _FORKING, str(path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    turn = Turn(path)
    taken = threading.Event()

    def take() -> None:
        with turn.taken():
            taken.set()

    taking = threading.Thread(target=take)
    taking.start()
    try:
        assert taken.wait(10)
        os.kill(child, 0)  # it lives on
    finally:
        os.kill(child, signal.SIGKILL)
        taking.join()
        turn.close()
