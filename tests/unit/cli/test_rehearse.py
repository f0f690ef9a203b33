"""The rehearsal against a small server that counts votes, or fails to."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tally.cli import main


class Tallier:
    """A server's memory. Votes of `refused` are answered 503 once; `lost` and `doubled` voters are counted wrongly."""

    def __init__(self, *, refused: str = "", lost: str = "", doubled: str = "") -> None:
        self.refused, self.lost, self.doubled = refused, lost, doubled
        self.calls: list[tuple[str, str]] = []
        self.votes: dict[str, str] = {}
        self.lock = Lock()

    def answer(self, method: str, path: str, value: Any) -> tuple[int, object]:
        with self.lock:
            self.calls.append((method, path))
            if path.endswith("/votes"):
                return self._vote(value)
            if path.endswith("/results"):
                counts = {option: list(self.votes.values()).count(option) for option in ("red", "green", "blue")}
                return 200, {"counts": counts}
            return 201 if method == "POST" else 200, {}

    def _vote(self, value: Any) -> tuple[int, object]:
        votes = value.get("votes", [value])
        for vote in votes:
            if vote["voter"] == self.refused:
                self.refused = ""
                return 503, {"detail": "later", "code": "busy"}
        for vote in votes:
            if vote["voter"] != self.lost:
                self.votes[vote["voter"]] = vote["option"]
            if vote["voter"] == self.doubled:
                self.votes["again"] = vote["option"]
        return 202, {}


@contextmanager
def served(tallier: Tallier) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            status, value = tallier.answer(self.command, self.path, msgspec.json.decode(body) if body else None)
            data = msgspec.json.encode(value)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_DELETE = do_POST  # noqa: N815  # names that the base class looks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rehearse(tallier: Tallier, *arguments: str) -> Result:
    with served(tallier) as url:
        return CliRunner().invoke(main, ["rehearse", "--url", url, "--minutes", "0.01", "--json", *arguments])


@pytest.mark.parametrize("size", ["1", "40"])
def test_each_vote_is_sent_until_it_is_accepted_and_the_poll_is_gone_in_the_end(size: str) -> None:
    tallier = Tallier(refused="voter-7")
    done = rehearse(tallier, "--votes", "100", "--list-size", size)
    assert done.exit_code == 0, done.output
    found = msgspec.json.decode(done.output)
    assert (found["accepted"], found["counted"], found["exact"]) == (100, 100, True)
    assert found["sent_again"] > 0
    (_, made), (method, deleted) = tallier.calls[0], tallier.calls[-1]
    assert (made, method, deleted.startswith("/v1/polls/rehearsal-")) == ("/v1/polls", "DELETE", True)


def test_a_vote_too_many_is_found() -> None:
    done = rehearse(Tallier(doubled="voter-3"), "--votes", "30")
    assert done.exit_code == 1
    assert not msgspec.json.decode(done.output)["exact"]


def test_a_vote_too_few_is_found() -> None:
    done = rehearse(Tallier(lost="voter-3"), "--votes", "30", "--wait", "0.3")
    assert done.exit_code == 1
    assert msgspec.json.decode(done.output)["counted"] == 29


def test_too_high_a_rate_is_refused_before_anything_is_sent() -> None:
    tallier = Tallier()
    done = rehearse(tallier, "--votes", "601")
    assert (done.exit_code, tallier.calls) == (2, [])
    assert "at most 1,000" in done.output
