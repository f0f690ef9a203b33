"""The vote route through the real application, on the fakes and in virtual time."""

import asyncio
from typing import Any

import msgspec
import pytest

from tally.errors import Unavailable
from tests.unit.web.conftest import KEY, VOTES, Play, Stage


def test_an_accepted_vote_is_in_the_topic_before_its_answer(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        assert (await stage.poll()).status == 201
        reply = await stage.vote()
        assert reply.status == 202
        assert stage.ballots == [("lunch", "red", reply.json["ballot"])]
        assert list(reply.json) == ["ballot"]

    play(scene)


def test_the_same_vote_again_is_the_same_ballot_and_no_message_holds_the_voter(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        first, second = await stage.vote(voter="ann-the-voter"), await stage.vote(voter="ann-the-voter")
        assert first.json == second.json
        assert all(b"ann-the-voter" not in message.data for message in stage.publisher.messages)

    play(scene)


def test_a_voter_is_one_in_each_form_that_unicode_has(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        composed, decomposed = await stage.vote(voter="Z\u00fcrich"), await stage.vote(voter="Zu\u0308rich")
        assert composed.json == decomposed.json

    play(scene)


def test_an_option_is_found_in_each_form_that_unicode_has(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(options=[{"id": "Zu\u0308rich"}])
        for form in ("Z\u00fcrich", "Zu\u0308rich"):
            assert (await stage.vote(form)).status == 202

    play(scene)


BAD_BODIES: list[tuple[str, Any, str]] = [
    ("empty", b"", "bad-json"),
    ("no JSON", b"red", "bad-json"),
    ("an array", b"[]", "bad-json"),
    ("an empty object", b"{}", "bad-json"),
    ("an unknown field", {"option": "red", "voter": "v", "weight": 2}, "bad-json"),
    ("NaN", b'{"option":"red","voter":NaN}', "bad-json"),
    ("Infinity", b'{"option":"red","voter":-Infinity}', "bad-json"),
    ("a number beyond floats", b'{"option":"red","voter":1e999}', "bad-json"),
    ("a duplicate field", b'{"option":"red","voter":"v","voter":"w"}', "bad-json"),
    ("a duplicate field, escaped", b'{"option":"red","voter":"v","\\u0076oter":"w"}', "bad-json"),
    ("a duplicate null field", b'{"option":"red","voter":"v","id":null,"id":null}', "bad-json"),
    ("invalid UTF-8", b'{"option":"red","voter":"\xff"}', "bad-json"),
    ("UTF-8 of a surrogate", b'{"option":"red","voter":"\xed\xa0\x80"}', "bad-json"),
    ("a lone high surrogate", b'{"option":"red","voter":"\\ud800"}', "bad-json"),
    ("a lone high surrogate with more", b'{"option":"red","voter":"\\ud800abcdefgh"}', "bad-json"),
    ("a lone low surrogate", b'{"option":"red","voter":"\\udc00"}', "bad-json"),
    ("a lone low surrogate with more", b'{"option":"red","voter":"x\\udc00abc"}', "bad-json"),
    ("two high surrogates", b'{"option":"red","voter":"\\ud800\\ud800"}', "bad-json"),
    ("a byte order mark", b'\xef\xbb\xbf{"option":"red","voter":"v"}', "bad-json"),
    ("UTF-16", '{"option":"red","voter":"v"}'.encode("utf-16"), "bad-json"),
    ("more after the end", b'{"option":"red","voter":"v"}{}', "bad-json"),
    ("deep nesting of objects", b'{"option":' * 100_000, "bad-json"),
    ("deep nesting of arrays", b'{"option":' + b"[" * 900_000, "bad-json"),
    ("deep nesting in an unknown field", b'{"x":' + b"[" * 60_000, "bad-json"),
    ("an option that is a number", {"option": 0, "voter": "v"}, "bad-json"),
    ("an option that is null", {"option": None, "voter": "v"}, "bad-json"),
    ("an option that is an array", {"option": [0], "voter": "v"}, "bad-json"),
    ("an option that is a flag", {"option": True, "voter": "v"}, "bad-json"),
    ("an option that is no text", {"option": "", "voter": "v"}, "bad-length"),
    ("an option by its number", {"option": "0", "voter": "v"}, "unknown-option"),
    ("an option that only begins well", {"option": "0abc", "voter": "v"}, "unknown-option"),
    ("an option by a negative number", {"option": "-1", "voter": "v"}, "unknown-option"),
    ("an option in other letters", {"option": "Red", "voter": "v"}, "unknown-option"),
    ("an option that Datastore reserves", {"option": "__key__", "voter": "v"}, "unknown-option"),
    ("an option with white space", {"option": "red ", "voter": "v"}, "bad-text"),
    ("no voter", {"option": "red"}, "voter-missing"),
    ("a voter that is null", {"option": "red", "voter": None}, "voter-missing"),
    ("a voter that is a number", {"option": "red", "voter": 0}, "bad-json"),
    ("a voter that is empty", {"option": "red", "voter": ""}, "bad-length"),
    ("a voter that is white space", {"option": "red", "voter": " "}, "bad-text"),
    ("a voter with a NUL", {"option": "red", "voter": "a\x00b"}, "bad-text"),
    ("a voter with a line feed", {"option": "red", "voter": "a\n"}, "bad-text"),
    ("an id in a poll that has voters", {"option": "red", "voter": "v", "id": KEY}, "unexpected-id"),
    ("a list beside a vote", {"option": "red", "votes": []}, "bad-json"),
    ("an empty list", {"votes": []}, "bad-length"),
    ("a list of other things", {"votes": ["red"]}, "bad-json"),
    ("a list with an unknown field", {"votes": [{"option": "red", "voter": "v", "weight": 2}]}, "bad-json"),
    ("a list with a duplicate field", b'{"votes":[{"option":"red","voter":"v","voter":"w"}]}', "bad-json"),
    ("the list twice", b'{"votes":[{"option":"red","voter":"v"}],"votes":[{"option":"red","voter":"v"}]}', "bad-json"),
]


@pytest.mark.parametrize(("name", "body", "code"), BAD_BODIES, ids=[row[0] for row in BAD_BODIES])
def test_a_bad_body_is_the_callers_error_and_publishes_nothing(play: Play, name: str, body: Any, code: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        reply = await stage.client.post(VOTES, body)
        assert reply.status == 400
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json["code"] == code
        assert not stage.publisher.messages

    play(scene)


@pytest.mark.parametrize("voter", ["__key__", "__x__", "a:b", 'a"b', "\\", "0", "null", "\U0001f600", "a" * 256])
def test_any_other_text_is_a_voter(play: Play, voter: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        assert (await stage.vote(voter=voter)).status == 202

    play(scene)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 202),
        ("application/json; charset=utf-8", 202),
        ('application/json;charset="UTF-8"', 202),
        ("APPLICATION/JSON", 202),
        ("application/json; charset=latin-1", 415),
        ("application/vnd.tally+json", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonp", 415),
        ("", 415),
        (None, 415),
    ],
)
def test_the_content_type_must_say_json(play: Play, content_type: str | None, status: int) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        headers = {} if content_type is None else {"content-type": content_type}
        body = [msgspec.json.encode({"option": "red", "voter": "v"})]
        reply = await stage.client.request("POST", VOTES, body, headers)
        assert reply.status == status
        if status == 415:
            assert reply.json["code"] == "unsupported-media-type"

    play(scene)


def test_an_encoded_body_is_refused(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        assert (await stage.vote(content_encoding="gzip")).status == 415
        assert (await stage.vote(content_encoding="identity")).status == 202

    play(scene)


def test_a_body_in_chunks_is_read_to_its_end_or_to_the_limit(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        body = msgspec.json.encode({"option": "red", "voter": "v"})
        headers = {"content-type": "application/json"}
        split = [body[:1], b"", body[1:5], body[5:]]
        assert (await stage.client.request("POST", VOTES, split, headers)).status == 202

        pulled = 0

        def endless() -> Any:
            nonlocal pulled
            while True:
                pulled += 1
                yield b" " * 100_000

        reply = await stage.client.request("POST", VOTES, endless(), headers)
        assert (reply.status, reply.json["code"]) == (413, "body-too-large")
        assert pulled <= 12

    play(scene)


def test_a_body_that_says_it_is_too_large_is_not_read(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()

        def unread() -> Any:
            yield b"x"
            yield b"x"
            raise AssertionError("read on")

        headers = {"content-type": "application/json", "content-length": "40000000"}
        reply = await stage.client.request("POST", VOTES, unread(), headers)
        assert reply.status == 413

    play(scene)


@pytest.mark.parametrize("length", ["", "-1", "+28", "28, 28", "0" * 5_000 + "28"])
def test_a_content_length_that_is_no_number_is_the_callers_error(play: Play, length: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        reply = await stage.vote(content_length=length)
        assert (reply.status, reply.json["code"]) == (400, "bad-header")
        assert not stage.publisher.messages

    play(scene)


def test_a_huge_body_beside_good_ones_takes_none_with_it(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        huge = stage.client.post(VOTES, b" " * 11_000_000)
        good = [stage.vote(voter=f"v-{number}") for number in range(10)]
        replies = await asyncio.gather(huge, *good)
        assert [reply.status for reply in replies] == [413] + [202] * 10
        assert len(stage.ballots) == 10

    play(scene)


def test_header_games_change_neither_ballot_nor_limit(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        replies = [await stage.vote(x_forwarded_for=f"10.0.0.{number}") for number in range(100)]
        assert {reply.json["ballot"] for reply in replies} == {replies[0].json["ballot"]}

    play(scene)


@pytest.mark.parametrize("trouble", ["publish fails", "publish hangs", "store fails", "store hangs"])
def test_an_outage_is_503_within_ten_seconds_with_a_wait(play: Play, trouble: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        port = stage.publisher if "publish" in trouble else stage.store
        if "fails" in trouble:
            port.error = Unavailable("down")
        else:
            port.seconds = 3_600
        started = stage.time()
        reply = await stage.vote()
        assert stage.time() - started < 10
        assert reply.status == 503
        assert 1 <= int(reply.headers["retry-after"]) <= 5
        port.error, port.seconds = None, 0
        await asyncio.sleep(1)
        assert (await stage.vote()).status == 202

    play(scene)


def test_a_503_may_be_in_and_sending_it_again_is_the_same_ballot(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        stage.publisher.after = Unavailable("reply lost")
        assert (await stage.vote()).status == 503
        stage.publisher.after = None
        assert (await stage.vote()).status == 202
        assert len(stage.ballots) == 2
        assert len(set(stage.ballots)) == 1

    play(scene)


def test_an_unknown_poll_is_404_and_past_the_ration_503_never_404(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        statuses = [(await stage.vote(poll=f"none-{number}")).status for number in range(80)]
        assert statuses == [404] * 50 + [503] * 30

    play(scene)
