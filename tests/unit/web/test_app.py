import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.routing import Route as StarletteRoute

from tally import errors
from tally.errors import TallyError, Unavailable
from tally.web import answer
from tally.web.answer import Answer
from tally.web.app import App, Request, Route
from tally.web.function import Function
from tests.asgi import Client
from tests.unit.web.conftest import Play, Stage


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/robots.txt",
        "/favicon.ico",
        "/v1",
        "/v1/",
        "/v1/polls/",
        "//v1/polls",
        "/v1/polls/lunch/",
        "/v1/polls/lunch/votes/",
        "/v1/polls/a%2Fb/votes/x",
        "/v1/polls/lunch%2Fvotes",
        "/v1%2Fpolls",
        "/V1/polls",
    ],
)
def test_other_paths_are_404_as_a_problem_document(play: Play, path: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        for method in ("GET", "POST"):
            reply = await stage.client.request(method, path)
            assert reply.status in (404, 405)
            assert reply.json["status"] == reply.status
            assert reply.headers["content-type"] == "application/problem+json"
        assert not stage.publisher.messages

    play(scene)


@pytest.mark.parametrize(
    "poll", ["a%2Fb", "..%2Fadmin", "%00", "%6Cunch", "..", ".", "lunch%20", "LUNCH", "lu\u00f1ch"]
)
def test_no_encoding_of_a_path_reaches_a_poll(play: Play, poll: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        assert (await stage.vote(poll=poll)).status == 404
        assert (await stage.client.get(f"/v1/polls/{poll}")).status == 404
        assert not stage.publisher.messages

    play(scene)


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/polls/lunch/votes", "OPTIONS, POST"),
        ("/v1/polls/lunch/results", "GET, HEAD, OPTIONS"),
        ("/v1/polls/lunch", "DELETE, GET, HEAD, OPTIONS, PATCH"),
        ("/v1/polls", "GET, HEAD, OPTIONS, POST"),
        ("/v1/polls/lunch/close", "OPTIONS, POST"),
        ("/live", "GET, HEAD, OPTIONS"),
    ],
)
def test_other_methods_are_405_with_the_methods_that_go(play: Play, path: str, allow: str) -> None:
    async def scene(stage: Stage) -> None:
        for method in ("PUT", "TRACE", "PROPFIND", "post"):
            reply = await stage.client.request(method, path)
            assert (reply.status, reply.headers["allow"]) == (405, allow)
            assert reply.json["code"] == "method-not-allowed"
        options = await stage.client.request("OPTIONS", path)
        assert (options.status, options.headers["allow"], options.body) == (204, allow, b"")

    play(scene)


def test_head_answers_as_get_does(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        for path in ("/v1/polls/lunch", "/live", "/v1/polls/none"):
            head, get = await stage.client.request("HEAD", path), await stage.client.get(path)
            assert (head.status, head.headers) == (get.status, get.headers)

    play(scene)


def test_health_turns_bad_when_publishing_has_failed_for_half_a_minute(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        assert (await stage.client.get("/health")).status == 200
        stage.publisher.error = Unavailable("down")
        assert (await stage.vote()).status == 503
        assert (await stage.client.get("/health")).status == 200
        await asyncio.sleep(31)
        assert (await stage.client.get("/health")).status == 503
        assert (await stage.client.get("/live")).status == 200
        stage.publisher.error = None
        await stage.vote()
        assert (await stage.client.get("/health")).status == 200

    play(scene)


async def _raising(error: Exception) -> Any:
    async def handler(request: Request) -> Answer:
        raise error

    return await Client(App([Route("GET", "/", handler)])).get("/")


STATUSES: dict[Any, int] = {
    errors.InvalidInput: 400,
    errors.TooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.VoteRefused: 409,
    errors.Forbidden: 403,
    errors.Unavailable: 503,
    errors.Refused: 503,
    errors.Rejected: 500,
    errors.ConfigError: 500,
    errors.UnsafeStore: 500,
    errors.BackendError: 500,
    TallyError: 500,
}


@pytest.mark.parametrize(("kind", "status"), STATUSES.items(), ids=lambda value: getattr(value, "__name__", value))
async def test_each_error_has_its_status(kind: type[TallyError], status: int) -> None:
    reply = await _raising(kind("the reason"))
    assert (reply.status, reply.json["status"]) == (status, status)
    if status not in (500, 503):
        assert (reply.json["detail"], reply.json["code"]) == ("the reason", kind.code)
    if status == 500:
        assert "the reason" not in reply.json["detail"]


async def test_a_wait_is_rounded_up() -> None:
    reply = await _raising(errors.Busy("wait", retry_after=0.2))
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")


async def test_an_error_of_ours_is_500_and_says_nothing_of_itself() -> None:
    reply = await _raising(ZeroDivisionError("secret"))
    assert (reply.status, reply.json["code"]) == (500, "internal")
    assert b"secret" not in reply.body


async def test_a_function_opens_its_app_once_and_then_takes_the_frameworks_place() -> None:
    opened = 0
    gate = asyncio.Event()

    async def compose() -> App:
        nonlocal opened
        opened += 1
        await gate.wait()

        async def handler(request: Request) -> Answer:
            return answer.json(200, {"path": request.scope["path"]})

        return App([Route("GET", "/live", handler)])

    function = Function(compose)

    async def target(request: StarletteRequest) -> Answer:
        return await function(request)

    framework = Starlette(routes=[StarletteRoute("/{path:path}", target, methods=["GET"])])
    client = Client(framework)
    first = [asyncio.create_task(client.get("/live")) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set()
    assert [reply.status for reply in await asyncio.gather(*first)] == [200] * 3
    assert opened == 1
    assert (await client.request("PURGE", "/live")).json["code"] == "method-not-allowed"


async def test_a_function_that_could_not_open_tries_again_with_the_next_request() -> None:
    failures = [errors.Unavailable("down")]

    async def compose() -> App:
        if failures:
            raise failures.pop()
        return App([])

    client = Client(Function(compose).serve)
    failed = await client.get("/live")
    assert (failed.status, failed.json["code"]) == (503, "unavailable")
    assert (await client.get("/live")).status == 404
