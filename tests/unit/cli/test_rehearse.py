"""The rehearsal against a small server that counts votes, or fails to."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from threading import Lock, Thread
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tally.cli import main

rehearsal = import_module("tally.cli.rehearse")  # its name in the package is the command's


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "SETTLED_SECONDS", 0)
    monkeypatch.setattr(rehearsal, "full_jitter", lambda *_, **__: 0)


class Tallier:
    """A server's memory. Votes of `refused` are answered 503 once, those of `hostile` 400, all after `limit` calls 429;
    `lost` and `doubled` voters are counted wrongly, `later` once more when the results were read. `failing` deletions
    are answered 500; a poll that is made with `made`.

    `vote`: called with each vote.
    """

    def __init__(
        self,
        *,
        refused: str = "",
        hostile: str = "",
        lost: str = "",
        doubled: str = "",
        later: str = "",
        failing: int = 0,
        made: int = 201,
        limit: int = 1_000,
        vote: Callable[[str], object] = lambda voter: None,
    ) -> None:
        self.refused, self.hostile, self.lost, self.doubled, self.later = refused, hostile, lost, doubled, later
        self.failing, self.made, self.limit, self.vote = failing, made, limit, vote
        self.calls: list[tuple[str, str]] = []
        self.votes: dict[str, str] = {}
        self.lock = Lock()

    @property
    def polls(self) -> int:
        """How many polls are there."""
        calls = [(method, path.count("/")) for method, path in self.calls]
        return calls.count(("POST", 2)) - calls.count(("DELETE", 3))

    def answer(self, method: str, path: str, value: Any) -> tuple[int, object]:
        with self.lock:
            if method == "DELETE" and self.failing:
                self.failing -= 1
                return 500, {"detail": "no", "code": "internal"}
            self.calls.append((method, path))
            if path.endswith("/votes"):
                return self._vote(value)
            if path.endswith("/results"):
                counts = {option: list(self.votes.values()).count(option) for option in ("red", "green", "blue")}
                if self.later in self.votes:
                    self.votes["again"] = self.votes[self.later]
                return 200, {"counts": counts}
            return self.made if method == "POST" else 200, {}

    def _vote(self, value: Any) -> tuple[int, object]:
        if len(self.calls) > self.limit:
            return 429, {}
        votes = value.get("votes", [value])
        for vote in votes:
            self.vote(vote["voter"])
            if vote["voter"] == self.refused:
                self.refused = ""
                return 503, {"detail": "later", "code": "busy"}
            if vote["voter"] == self.hostile:
                return 400, {"detail": "no such option", "code": "bad-option"}
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


def found(done: Result) -> Any:
    return msgspec.json.decode(done.stdout)


@pytest.mark.parametrize("size", ["1", "40"])
def test_each_vote_is_sent_until_it_is_accepted_and_the_poll_is_gone_in_the_end(size: str) -> None:
    tallier = Tallier(refused="voter-7")
    done = rehearse(tallier, "--votes", "100", "--list-size", size)
    assert done.exit_code == 0, done.output
    result = found(done)
    assert (result["accepted"], result["counted"], result["exact"]) == (100, 100, True)
    assert result["sent_again"] > 0
    (_, made), (method, deleted) = tallier.calls[0], tallier.calls[-1]
    assert (made, method, deleted.startswith("/v1/polls/rehearsal-")) == ("/v1/polls", "DELETE", True)
    assert f"the poll {deleted.rpartition('/')[2]}, which is deleted" in done.stderr


@pytest.mark.parametrize("wrong", ["doubled", "later"])
def test_a_vote_too_many_is_found_also_when_it_comes_late(wrong: str) -> None:
    tallier = Tallier(doubled="voter-3") if wrong == "doubled" else Tallier(later="voter-3")
    done = rehearse(tallier, "--votes", "30")
    assert done.exit_code == 1
    assert (found(done)["counted"], found(done)["exact"]) == (31, False)


def test_a_vote_too_few_is_found() -> None:
    done = rehearse(Tallier(lost="voter-3"), "--votes", "30", "--wait", "0.3")
    assert done.exit_code == 1
    assert found(done)["counted"] == 29


def test_too_high_a_rate_is_refused_before_anything_is_sent() -> None:
    tallier = Tallier()
    done = rehearse(tallier, "--votes", "601")
    assert (done.exit_code, tallier.calls) == (2, [])
    assert "at most 1,000" in done.output


def test_what_is_not_sent_in_time_is_not_sent_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "LATE_SECONDS", -0.3)  # half of it
    done = rehearse(Tallier(), "--votes", "100")
    assert done.exit_code == 1
    result = found(done)
    assert result["exact"]
    assert 0 < result["accepted"] == result["counted"] < 100


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Let SIGINT interrupt, as in a terminal, whatever was served in this process before."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("_ctrl_c")
def test_an_interrupted_rehearsal_deletes_its_poll(number: signal.Signals) -> None:
    def interrupt(voter: str) -> None:
        if voter == "voter-20":
            os.kill(os.getpid(), number)

    tallier = Tallier(vote=interrupt)
    done = rehearse(tallier, "--votes", "100")
    assert done.exit_code == 130
    assert "interrupted" in done.stderr
    assert (tallier.polls, done.stdout) == (0, "")


def test_a_vote_that_is_refused_ends_it_with_the_reason_and_deletes_its_poll() -> None:
    tallier = Tallier(hostile="voter-20")
    done = rehearse(tallier, "--votes", "100")
    assert done.exit_code == 1
    assert "no such option (bad-option)" in done.stderr
    assert tallier.polls == 0


def test_a_limit_of_an_address_is_named_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "LATE_SECONDS", 0)
    tallier = Tallier(limit=10)
    done = rehearse(tallier, "--votes", "100")
    assert done.exit_code == 1
    assert "--list-size" in done.stderr
    assert tallier.polls == 0


def test_a_deletion_that_fails_is_tried_again() -> None:
    tallier = Tallier(failing=2)
    assert rehearse(tallier, "--votes", "10").exit_code == 0
    assert tallier.polls == 0


def test_a_poll_that_stays_is_named_with_the_command_that_deletes_it() -> None:
    done = rehearse(Tallier(failing=99), "--votes", "10")
    assert done.exit_code == 0
    assert "could not be deleted; later: tally poll delete rehearsal-" in done.stderr


def test_a_poll_that_was_made_though_the_answer_says_otherwise_is_deleted() -> None:
    tallier = Tallier(made=500)
    assert rehearse(tallier, "--votes", "10").exit_code == 1
    assert [method for method, _ in tallier.calls] == ["POST", "DELETE"]


def test_a_server_that_is_not_there_is_named_and_no_poll_of_it() -> None:
    with served(Tallier()) as url:
        pass
    done = CliRunner().invoke(main, ["rehearse", "--url", url])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {url} does not answer")


def test_words_say_what_went_wrong() -> None:
    with served(Tallier(lost="voter-3")) as url:
        arguments = ["rehearse", "--url", url, "--minutes", "0.01", "--votes", "30", "--wait", "0"]
        done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "30 votes accepted in" in done.stdout
    assert "counted 29 of 30 after" in done.stdout
    assert "NOT EXACT" in done.stdout
    assert "is a worker running" in done.stdout
