import fcntl
import threading
import time
from pathlib import Path

from tally.embedded.turn import Turn


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
