"""The commands against a server of the test's own, which answers what it is told to."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tally.cli import main

Told = tuple[int, Any, dict[str, str]]
ACCEPTED: Told = (202, {"ballot": "00" * 16}, {})
BUSY: Told = (503, {"code": "publish-unconfirmed", "detail": "try again"}, {"Retry-After": "3"})
HANG_UP: Told = (0, {}, {})
GONE: Told = (404, {"code": "gone", "detail": "no more"}, {})


class Server:
    def __init__(self) -> None:
        self.answers: list[Told] = []
        self.requests: list[tuple[str, str, Any, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                outer.requests.append((self.command, self.path, body, dict(self.headers)))
                status, value, headers = outer.answers.pop(0)
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, header in headers.items():
                    self.send_header(name, header)
                encoded = json.dumps(value).encode()
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815  # the library's names

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--url", self.url])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the command would have waited; a thread that an earlier test left behind sleeps as it did."""
    made: list[float] = []
    asleep = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            made.append(seconds)
        else:
            asleep(seconds)

    monkeypatch.setattr("time.sleep", sleep)
    return made


def test_a_vote_is_sent_again_as_the_same_ballot_until_it_is_accepted(server: Server, waits: list[float]) -> None:
    server.answers = [BUSY, HANG_UP, BUSY, ACCEPTED]
    result = server.run("vote", "lunch", "red")
    assert (result.exit_code, result.stdout) == (0, f"accepted: ballot {'00' * 16}\n")
    assert result.stderr == "the server answers 503. Trying again for 60 s (--give-up).\n"
    bodies = [body for _, _, body, _ in server.requests]
    assert bodies == [bodies[0]] * 4
    assert len(bodies[0]["id"]) >= 16
    assert [wait >= 3 for wait in waits] == [True, False, True]


def test_a_vote_that_is_refused_is_not_sent_again(server: Server, waits: list[float]) -> None:
    server.answers = [(409, {"code": "poll-closed", "detail": "the poll is closed"}, {})]
    result = server.run("vote", "lunch", "red", "--voter", "ann")
    assert (result.exit_code, result.output) == (1, "Error: the poll is closed (poll-closed)\n")
    assert server.requests[0][2] == {"option": "red", "voter": "ann"}
    assert not waits


def test_a_vote_is_given_up_after_the_time_that_was_said(server: Server, waits: list[float]) -> None:
    server.answers = [BUSY, BUSY]
    result = server.run("vote", "lunch", "red", "--give-up", "0")
    assert (result.exit_code, result.output) == (1, "Error: try again (publish-unconfirmed)\n")


def test_options_and_fields_make_a_definition(server: Server) -> None:
    server.answers = [(201, {"id": "lunch", "options": [{"id": "red", "label": "Red"}]}, {})]
    result = server.run("poll", "create", "lunch", "red=Red", "blue", "--revote", "replace", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["id"] == "lunch"
    assert server.requests[0][:3] == (
        "POST",
        "/v1/polls",
        {
            "id": "lunch",
            "title": "lunch",
            "options": [{"id": "red", "label": "Red"}, {"id": "blue"}],
            "revote": "replace",
        },
    )


def test_a_change_names_the_revision_that_it_read(server: Server) -> None:
    server.answers = [(200, {"revision": 7}, {}), (200, {"id": "lunch"}, {})]
    result = server.run("poll", "patch", "lunch", "--add", "soup=Soup", "--withdraw", "red")
    assert result.exit_code == 0
    assert server.requests[1][2] == {
        "revision": 7,
        "add_options": [{"id": "soup", "label": "Soup"}],
        "withdraw_options": ["red"],
    }
    assert server.run("poll", "patch", "lunch").exit_code == 2


def test_a_list_goes_on_to_its_end(server: Server) -> None:
    item = {"id": "a", "status": "open", "closes_at": None, "title": "A"}
    server.answers = [(200, {"polls": [item], "cursor": "Zg=="}, {}), (200, {"polls": [item], "cursor": None}, {})]
    result = server.run("poll", "list", "--json")
    assert json.loads(result.output) == {"polls": [item, item]}
    assert [path for _, path, _, _ in server.requests] == ["/v1/polls", "/v1/polls?cursor=Zg=="]


@pytest.mark.parametrize("text", ["[/etc]", "[red]x", ":cat:"])
def test_what_people_named_is_shown_as_it_is(server: Server, text: str) -> None:
    item = {"id": "a", "status": "open", "closes_at": None, "title": text}
    body = {"poll": "a", "status": "open", "total": 1, "counts": {text: 1}, "as_of": "2026-11-30T10:00:00Z"}
    server.answers = [(200, {"polls": [item], "cursor": None}, {}), (200, item, {}), (200, body, {})]
    for command in (("poll", "list"), ("poll", "show", "a"), ("results", "a")):
        assert text in server.run(*command).output


def test_results_are_watched_by_their_tag_through_outages(server: Server, waits: list[float]) -> None:
    counts = {"poll": "lunch", "status": "open", "total": 3, "counts": {"red": 3}, "as_of": "2026-11-30T10:00:03Z"}
    server.answers = [(200, counts, {"ETag": '"1"'}), (304, {}, {}), BUSY, HANG_UP, GONE]
    result = server.run("results", "lunch", "--watch", "--json")
    assert result.exit_code == 1
    assert result.output.count('"total": 3') == 1
    assert [headers.get("If-None-Match") for *_, headers in server.requests] == [None, *['"1"'] * 4]


def counted(total: int) -> Told:
    """A poll's results, whose total is its tag too."""
    as_of = f"2026-11-30T10:00:0{total}Z"
    body = {"poll": "lunch", "status": "open", "total": total, "counts": {"red": total, "blue": 0}, "as_of": as_of}
    return 200, body, {"ETag": f'"{total}"'}


def test_results_watched_through_a_pipe_are_a_line_a_change(server: Server, waits: list[float]) -> None:
    hidden: Told = (200, {**counted(4)[1], "total": None, "counts": None}, {"ETag": '"4"'})
    server.answers = [counted(1), (304, {}, {}), counted(3), hidden, GONE]
    result = server.run("results", "lunch", "--watch")
    assert result.stdout.splitlines() == [
        "2026-11-30T10:00:01Z lunch open total=1 red=1 blue=0",
        "2026-11-30T10:00:03Z lunch open total=3 red=3 blue=0",
        "2026-11-30T10:00:04Z lunch open total=hidden",
    ]


def test_results_watched_as_json_are_a_value_a_change(server: Server, waits: list[float]) -> None:
    server.answers = [counted(1), (304, {}, {}), counted(3), GONE]
    printed = server.run("results", "lunch", "--watch", "--json").stdout
    first, end = json.JSONDecoder().raw_decode(printed)
    second, _ = json.JSONDecoder().raw_decode(printed[end:].lstrip())
    assert [first, second] == [counted(1)[1], counted(3)[1]]


def test_results_watched_never_go_back_to_what_another_instance_read_sooner(server: Server, waits: list[float]) -> None:
    server.answers = [counted(3), counted(2), counted(4), GONE]
    lines = server.run("results", "lunch", "--watch").stdout.splitlines()
    assert [line.split()[3] for line in lines] == ["total=3", "total=4"]


def test_hidden_results_say_so(server: Server) -> None:
    server.answers = [(200, {"poll": "lunch", "status": "open", "total": None, "counts": None}, {})]
    assert "hidden until the end" in server.run("results", "lunch").output


def test_a_token_is_sent_and_an_odd_poll_id_stays_one_segment(server: Server) -> None:
    server.answers = [(200, {"id": "x"}, {})]
    server.run("poll", "show", "a/b c", "--token", "secret")
    _, path, _, headers = server.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/polls/a%2Fb%20c", "Bearer secret")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", ""])
def test_a_wrong_address_is_a_wrong_command_line(url: str) -> None:
    result = CliRunner().invoke(main, ["results", "lunch", "--url", url])
    assert result.exit_code == 2
    assert "no http or https address" in result.output


def test_a_server_that_is_not_there_is_one_line() -> None:
    with Server() as gone:
        url = gone.url
    result = CliRunner().invoke(main, ["results", "lunch", "--url", url])
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {url} does not answer: ")
    assert "`make run`" in result.output
    assert "TALLY_URL" in result.output
    assert result.output.count("\n") == 1


def test_a_vote_without_a_server_says_at_once_that_it_tries_and_what_to_do(waits: list[float]) -> None:
    with Server() as gone:
        url = gone.url
    result = CliRunner().invoke(main, ["vote", "lunch", "red", "--url", url, "--give-up", "0.5"])
    said = result.stderr.splitlines()
    assert (result.exit_code, result.stdout, len(said), bool(waits)) == (1, "", 2, True)
    assert "`make run` starts one here, --url or TALLY_URL names another. Trying again for 0.5 s" in said[0]
    assert said[1].startswith(f"Error: {url} does not answer: ")


def test_an_answer_that_is_no_json_is_one_line(server: Server) -> None:
    server.answers = [(200, {}, {})]
    server.run("poll", "show", "lunch")
    server.answers = [(502, "", {"Content-Type": "text/html"})]
    result = server.run("poll", "show", "lunch")
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
