"""What only real processes and sockets show of the functions."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emulator.process import guarded
from tally import bootstrap, config
from tally.cli.console import run
from tests.integration.web.conftest import BIN, Reply, Serve, Served, read

POLL = '{"id":"lunch","title":"Lunch","options":[{"id":"red"},{"id":"blue"}]}'
VOTES = "/v1/polls/lunch/votes"


def _vote(voter: str) -> str:
    return f'{{"option":"red","voter":"{voter}"}}'


def _published(environ: Mapping[str, str]) -> set[str]:
    """Return the ballots that are in the subscription."""

    async def work() -> set[str]:
        backend = await bootstrap.open_backend(config.load(environ))
        puller = backend.puller("votes")
        ballots: set[str] = set()
        for _ in range(20):
            messages = await puller.pull(100)
            if not messages:
                break
            for message in messages:
                for group in json.loads(message.data)["groups"]:
                    ids = b64decode(group["ballots"])
                    ballots |= {ids[start : start + 16].hex() for start in range(0, len(ids), 16)}
            await puller.acknowledge([message.ack_id for message in messages])
        await backend.close()
        return ballots

    return run(work())


@pytest.mark.parametrize("backend", ["embedded", "emulated"])
def test_a_vote_goes_through_the_plain_framework_into_the_topic(
    request: pytest.FixtureRequest, serve: Serve, backend: str
) -> None:
    environ: dict[str, str] = request.getfixturevalue(backend)
    admin, public = serve("admin", environ), serve("public", environ)
    assert admin.call("POST", "/v1/polls", POLL).status == 201
    accepted = public.call("POST", VOTES, _vote("ann"))
    assert accepted.status == 202
    assert _published(environ) == {json.loads(accepted.body)["ballot"]}
    assert json.loads(public.call("GET", "/v1/polls/lunch/results").body)["total"] == 0
    assert public.call("POST", "/v1/polls", POLL).status == 404
    assert admin.call("POST", VOTES, _vote("ann")).status == 404


def _raw(served: Served, path: str, body: str) -> Reply:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return served.send(head.encode() + body.encode())


def test_raw_requests_reach_no_other_poll_and_get_problem_documents(embedded: dict[str, str], serve: Serve) -> None:
    serve("admin", embedded).call("POST", "/v1/polls", POLL)
    public = serve("public", embedded)
    for path in (
        "/v1/polls/a%2Fb/votes",
        "/v1/polls/..%2Fadmin/votes",
        "/v1/polls/%00/votes",
        "/v1/polls/lunch%2Fvotes",
        "/v1/polls/%6Cunch/votes",
        "/v1/polls/../polls/lunch/votes",
    ):
        reply = _raw(public, path, _vote("ann"))
        assert reply.status in (404, 405), path
        assert json.loads(reply.body)["status"] == reply.status
    for method in ("PUT", "TRACE", "PROPFIND"):
        reply = public.call(method, VOTES)
        assert reply.status == 405
        assert "allow: options, post" in reply.headers
    for path in ("/robots.txt", "/favicon.ico"):
        assert public.call("GET", path).status == 404
    assert _published(embedded) == set()


def _memory(process_id: int) -> int:
    """Return the greatest memory of a process group's processes so far, in bytes."""
    peaks = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getpgid(int(status.parent.name)) == process_id:
                text = status.read_text()
                peaks.append(int(text.partition("VmHWM:")[2].split()[0]) * 1024)
        except (OSError, IndexError, ValueError):
            continue
    return max(peaks)


def test_a_body_without_an_end_is_refused_and_takes_no_memory(embedded: dict[str, str], serve: Serve) -> None:
    public = serve("public", embedded)
    before = _memory(public.process.pid)
    with public.connect() as connection:
        connection.sendall(
            f"POST {VOTES} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"

        def pour() -> None:
            try:
                for _ in range(640):  # 42 MB
                    connection.sendall(chunk)
            except OSError:
                return

        pouring = threading.Thread(target=pour)
        pouring.start()
        reply = read(connection)
        assert reply.status == 413
        pouring.join(30)
    assert _memory(public.process.pid) - before < 20_000_000
    head = f"POST {VOTES} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 11000000\r\n\r\n"
    assert public.send(head.encode()).status == 413


def test_every_vote_that_sigterm_finds_in_flight_is_answered_and_published(
    embedded: dict[str, str], serve: Serve
) -> None:
    serve("admin", embedded).call("POST", "/v1/polls", POLL)
    public = serve("public", embedded)
    assert public.call("POST", VOTES, _vote("first")).status == 202
    connections = [public.connect() for _ in range(50)]
    for number, connection in enumerate(connections):
        body = _vote(f"v-{number}")
        head = (
            f"POST {VOTES} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        connection.sendall((head + body).encode())
    first = read(connections[0])
    os.kill(public.process.pid, signal.SIGTERM)
    ballots = {json.loads(first.body)["ballot"]}
    unanswered = 0
    for connection in connections[1:]:
        try:
            reply = read(connection)
            assert reply.status == 202
            ballots.add(json.loads(reply.body)["ballot"])
        except ConnectionError:  # it was never read: no answer was promised
            unanswered += 1
        finally:
            connection.close()
    connections[0].close()
    assert public.process.wait(10) == 0
    assert ballots <= _published(embedded)
    assert unanswered < 50


def test_pubsub_out_of_reach_is_503_within_ten_seconds(emulated: dict[str, str], serve: Serve) -> None:
    """Both a port that is closed and one that never answers; at the same time, for each takes as long as it may."""
    serve("admin", emulated).call("POST", "/v1/polls", POLL)

    def ask(public: Served) -> tuple[Reply, float]:
        started = time.monotonic()
        return public.call("POST", VOTES, _vote("ann")), time.monotonic() - started

    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed, ThreadPoolExecutor() as threads:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        troubles = {"silent": silent.getsockname()[1], "closed": closed.getsockname()[1]}
        functions = [
            serve("public", {**emulated, "PUBSUB_EMULATOR_HOST": f"127.0.0.1:{port}"}) for port in troubles.values()
        ]
        for trouble, (reply, seconds) in zip(troubles, threads.map(ask, functions), strict=True):
            assert seconds < 10, trouble
            assert reply.status == 503, trouble
            assert "retry-after: " in reply.headers, trouble


def test_each_of_several_worker_processes_publishes(embedded: dict[str, str], serve: Serve) -> None:
    serve("admin", embedded).call("POST", "/v1/polls", POLL)
    public = serve("public", {**embedded, "WORKERS": "2"})
    accepted = set()
    for number in range(20):
        reply = public.call("POST", VOTES, _vote(f"v-{number}"))
        assert reply.status == 202
        accepted.add(json.loads(reply.body)["ballot"])
    assert _published(embedded) == accepted


def test_in_the_cloud_public_does_not_start_without_its_ballot_key(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_EMULATOR_HOST")}
    environ |= {"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p", "K_SERVICE": "public"}
    environ["TALLY_BALLOT_KEYS"] = str(tmp_path / "none")
    command = [str(BIN / "functions-framework"), "--source", "functions/main.py", "--target", "public", "--port", "0"]
    ended = subprocess.run(command, env=environ, capture_output=True, timeout=60)
    assert ended.returncode != 0
    assert b"no key of version '1'" in ended.stderr


def test_tally_serve_takes_a_free_port_says_where_it_is_and_ends_in_order(embedded: dict[str, str]) -> None:
    command = [sys.executable, "-c", "from tally.cli import main; main()", "serve", "--port", "0"]
    with subprocess.Popen(
        guarded(command), env={**os.environ, **embedded}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = int(line.split("127.0.0.1:")[1].split()[0])
            assert "embedded" in line
            server = Served(process, port)  # type: ignore[arg-type]  # its output is text
            assert server.call("POST", "/v1/polls", POLL).status == 201
            assert server.call("POST", VOTES, _vote("ann")).status == 202
            assert server.call("PATCH", "/v1/polls/lunch", '{"revision":1,"title":"Supper"}').status == 200
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
