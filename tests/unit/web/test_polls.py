import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tally.clock import to_datetime
from tally.errors import Unavailable
from tests.unit.web.conftest import Play, Stage

POLLS = "/v1/polls"


def poll(**fields: object) -> dict[str, object]:
    return {"id": "lunch", "title": "Lunch", "options": [{"id": "red"}], **fields}


def test_a_poll_is_made_shown_listed_changed_closed_and_deleted(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        client = stage.client
        made = await client.post(POLLS, poll())
        assert (made.status, made.headers["location"]) == (201, "/v1/polls/lunch")
        assert (await client.get("/v1/polls/lunch")).json == made.json
        assert (await client.get(POLLS)).json == {"polls": [made.json], "cursor": None}
        changed = await client.send("PATCH", "/v1/polls/lunch", {"revision": 1, "title": "Supper"})
        assert (changed.json["title"], changed.json["revision"]) == ("Supper", 2)
        closed = await client.post("/v1/polls/lunch/close", None)
        assert (closed.status, closed.json["status"]) == (200, "open")
        await asyncio.sleep(5)
        assert (await client.get("/v1/polls/lunch")).json["status"] == "closed"
        deleted = await client.request("DELETE", "/v1/polls/lunch")
        assert deleted.status == 200
        await asyncio.sleep(5)
        assert (await client.get("/v1/polls/lunch")).json["status"] == "deleted"
        assert (await client.get(POLLS)).json["polls"] == []
        assert (await client.post(POLLS, poll())).json["code"] == "poll-exists"
        assert (await client.get("/v1/polls/lunch/results")).status == 410

    play(scene)


BAD_POLLS: list[tuple[str, Any, str]] = [
    ("no id", {"title": "T", "options": [{"id": "a"}]}, "bad-json"),
    ("an id that is a number", poll(id=0), "bad-json"),
    ("an empty id", poll(id=""), "bad-id"),
    ("an id of white space", poll(id=" "), "bad-id"),
    ("an id with a slash", poll(id="../admin"), "bad-id"),
    ("a reserved id", poll(id="__key__"), "bad-id"),
    ("no options", poll(options=[]), "bad-options"),
    ("an unknown field", poll(owner="me"), "bad-json"),
    ("an unknown field of an option", poll(options=[{"id": "a", "colour": "red"}]), "bad-json"),
    ("an empty label", poll(options=[{"id": "a", "label": ""}]), "bad-length"),
    ("a duplicate field", b'{"id":"a","id":"b","title":"T","options":[{"id":"a"}]}', "bad-json"),
    ("a number that is no integer", b'{"id":"a","title":"T","options":[{"id":"a"}],"partitions":1.5}', "bad-json"),
    ("NaN", b'{"id":"a","title":"T","options":[{"id":"a"}],"partitions":NaN}', "bad-json"),
    ("an integer beyond any", poll(expected_votes=10**30), "bad-size"),
    ("a policy that there is not", poll(revote="toggle"), "bad-json"),
    ("an end without a zone", poll(closes_at="2030-07-01T12:00:00"), "bad-json"),
    ("an end as a number", poll(closes_at=1_900_000_000), "bad-json"),
    ("an end that is a date", poll(closes_at="2030-07-01"), "bad-json"),
    ("an end that is null", poll(closes_at=None), "bad-json"),
    ("an end in the past", poll(closes_at="2001-01-01T00:00:00Z"), "bad-time"),
    ("an end beyond the calendar", poll(closes_at="9999-12-31T23:59:59-14:00"), "bad-time"),
    ("an opening before 1970", poll(opens_at="1969-12-31T23:59:59Z"), "bad-time"),
    ("an end at the opening", poll(opens_at="2040-01-01T00:00:00Z", closes_at="2040-01-01T09:00:00+09:00"), "bad-time"),
    ("an end before the opening", poll(opens_at="2040-01-01T00:00:00Z", closes_at="2039-01-01T00:00:00Z"), "bad-time"),
]


@pytest.mark.parametrize(("name", "body", "code"), BAD_POLLS, ids=[row[0] for row in BAD_POLLS])
def test_a_bad_definition_is_the_callers_error_and_stores_nothing(play: Play, name: str, body: Any, code: str) -> None:
    async def scene(stage: Stage) -> None:
        reply = await stage.client.post(POLLS, body)
        assert (reply.status, reply.json["code"]) == (400, code)
        assert stage.store.calls["commit"] == 0

    play(scene)


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("voters", "'one-ballot' or 'open'"),
        ("revote", "'keep' or 'replace'"),
        ("results", "'live' or 'after-close'"),
    ],
)
def test_a_value_that_is_no_choice_is_answered_with_the_choices(play: Play, field: str, choices: str) -> None:
    async def scene(stage: Stage) -> None:
        reply = await stage.client.post(POLLS, poll(**{field: "toggle"}))
        assert f"Invalid enum value 'toggle' - at `$.{field}`: want {choices}" in reply.json["detail"]

    play(scene)


@pytest.mark.parametrize(
    ("sent", "instant"),
    [
        ("2040-07-01T12:00:00Z", datetime(2040, 7, 1, 12, tzinfo=UTC)),
        ("2040-07-01T12:00:00+09:00", datetime(2040, 7, 1, 3, tzinfo=UTC)),
        ("2040-07-01T12:00:00-03:30", datetime(2040, 7, 1, 15, 30, tzinfo=UTC)),
        ("2040-10-28T02:30:00+02:00", datetime(2040, 10, 28, 0, 30, tzinfo=UTC)),
        ("2040-10-28T02:30:00+01:00", datetime(2040, 10, 28, 1, 30, tzinfo=UTC)),
        ("2040-07-01T12:00:00.000001Z", datetime(2040, 7, 1, 12, 0, 0, 1, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/St_Johns"])
def test_an_instant_comes_back_exactly_wherever_the_server_is(
    play: Play, monkeypatch: pytest.MonkeyPatch, sent: str, instant: datetime, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)

    async def scene(stage: Stage) -> None:
        await stage.client.post(POLLS, poll(closes_at=sent))
        shown = (await stage.client.get("/v1/polls/lunch")).json["closes_at"]
        assert msgspec.convert(shown, datetime) == instant

    play(scene)


@pytest.mark.parametrize("field", ["voters", "revote", "results", "partitions", "key_version"])
def test_what_would_change_how_votes_count_never_changes(play: Play, field: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        value = (await stage.client.get("/v1/polls/lunch")).json.get(field, "2")
        reply = await stage.client.send("PATCH", "/v1/polls/lunch", {"revision": 1, field: value})
        assert (reply.status, reply.json["code"]) == (409, "frozen-field")

    play(scene)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"title": "T"}, 400, "bad-json"),
        ({"revision": 2, "title": "T"}, 409, "stale-revision"),
        ({"revision": 1, "title": ""}, 400, "bad-length"),
        ({"revision": 1, "id": "other"}, 400, "bad-json"),
        ({"revision": 1, "options": []}, 400, "bad-json"),
        ({"revision": 1, "add_options": [{"id": "red"}]}, 400, "bad-options"),
        ({"revision": 1, "withdraw_options": ["green"]}, 400, "unknown-option"),
        ({"revision": 1, "opens_at": "2040-07-01T12:00:00Z"}, 409, "opening-fixed"),
    ],
)
def test_a_bad_change_is_refused(play: Play, change: dict[str, object], status: int, code: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        reply = await stage.client.send("PATCH", "/v1/polls/lunch", change)
        assert (reply.status, reply.json["code"]) == (status, code)
        assert (await stage.client.get("/v1/polls/lunch")).json["revision"] == 1

    play(scene)


def test_a_list_goes_on_by_its_cursor(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        for number in range(5):
            await stage.poll(f"p-{number}")
        first = (await stage.client.get("/v1/polls?limit=3")).json
        second = (await stage.client.get(f"/v1/polls?limit=3&cursor={first['cursor']}")).json
        assert [item["id"] for item in first["polls"] + second["polls"]] == [f"p-{number}" for number in range(5)]

    play(scene)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "page=2", "cursor=%", "limit", "%ff=1"])
def test_a_bad_query_is_the_callers_error(play: Play, query: str) -> None:
    async def scene(stage: Stage) -> None:
        assert (await stage.client.get(f"/v1/polls?{query}")).status == 400

    play(scene)


def test_an_unknown_poll_is_404_by_every_route(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        replies = [
            await stage.client.get("/v1/polls/none"),
            await stage.client.get("/v1/polls/none/results"),
            await stage.client.request("DELETE", "/v1/polls/none"),
            await stage.client.post("/v1/polls/none/close", None),
            await stage.client.send("PATCH", "/v1/polls/none", {"revision": 1}),
        ]
        assert {(reply.status, reply.json["code"]) for reply in replies} == {(404, "poll-not-found")}

    play(scene)


def test_a_store_that_is_down_is_503_for_the_administrator_too(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.error = Unavailable("down")
        reply = await stage.poll()
        assert (reply.status, reply.json["code"]) == (503, "unavailable")
        assert int(reply.headers["retry-after"]) >= 1

    play(scene)


def test_results_are_hidden_on_every_path_until_the_end(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        end = to_datetime(stage.clock.now()) + timedelta(seconds=60)
        await stage.poll(results="after-close", closes_at=end)
        await stage.vote()
        shown = (await stage.client.get("/v1/polls/lunch/results")).json
        assert (shown["total"], shown["counts"], shown["status"], shown["final"]) == (None, None, "open", False)
        await asyncio.sleep(61)
        shown = (await stage.client.get("/v1/polls/lunch/results")).json
        assert (shown["total"], shown["counts"], shown["status"]) == (0, {"red": 0, "blue": 0}, "closed")

    play(scene)


def test_results_that_have_not_changed_are_not_sent_again(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        path = "/v1/polls/lunch/results"
        first = await stage.client.get(path)
        assert (first.status, first.headers["cache-control"]) == (200, "public, max-age=1")
        tag = first.headers["etag"]
        await asyncio.sleep(1)
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            again = await stage.client.get(path, if_none_match=known)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert (await stage.client.get(path, if_none_match='"other"')).status == 200
        await stage.client.post("/v1/polls/lunch/close", None)
        await asyncio.sleep(11)
        assert (await stage.client.get(path, if_none_match=tag)).json["status"] == "closed"

    play(scene)
