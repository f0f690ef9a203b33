"""Each limit of what a request may hold: at it the request is taken, one past it refused, by status and code."""

from typing import Any, NamedTuple

import msgspec
import pytest

from tally import limits
from tally.errors import InvalidInput
from tally.web import body
from tests.unit.web.conftest import Play, Stage

POLLS = "/v1/polls"
VOTES = "/v1/polls/lunch/votes"
EURO = "\u20ac"  # three bytes


def _poll(**fields: object) -> dict[str, object]:
    return {"id": "other", "title": "T", "options": [{"id": "a"}], **fields}


def _options(number: int) -> list[dict[str, str]]:
    return [{"id": f"option-{place}"} for place in range(number)]


def _padded(size: int, value: object) -> bytes:
    encoded = msgspec.json.encode(value)
    return encoded + b" " * (size - len(encoded))


class Case(NamedTuple):
    name: str
    path: str
    at: Any
    past: Any
    accepted: int
    refused: int
    code: str


VOTE = {"option": "red", "voter": "v"}
MOST = limits.VOTES_PER_PARTITION
CASES = [
    Case("OPTIONS", POLLS, _poll(options=_options(1_000)), _poll(options=_options(1_001)), 201, 400, "bad-options"),
    Case(
        "OPTION_ID_BYTES",
        POLLS,
        _poll(options=[{"id": EURO * 42 + "ab"}]),
        _poll(options=[{"id": EURO * 43}]),
        201,
        400,
        "bad-length",
    ),
    Case(
        "LABEL_BYTES",
        POLLS,
        _poll(options=[{"id": "a", "label": EURO * 100}]),
        _poll(options=[{"id": "a", "label": EURO * 100 + "x"}]),
        201,
        400,
        "bad-length",
    ),
    Case("TITLE_BYTES", POLLS, _poll(title=EURO * 500), _poll(title="x" * 1_501), 201, 400, "bad-length"),
    Case(
        "TITLE_BYTES", POLLS, _poll(title="\U0001f600" * 375), _poll(title="\U0001f600" * 376), 201, 400, "bad-length"
    ),
    Case("PARTITIONS", POLLS, _poll(partitions=256), _poll(partitions=257), 201, 400, "bad-size"),
    Case(
        "VOTES_PER_PARTITION",
        POLLS,
        _poll(partitions=3, expected_votes=3 * MOST),
        _poll(partitions=3, expected_votes=3 * MOST + 1),
        201,
        400,
        "bad-size",
    ),
    Case(
        "VOTER_BYTES",
        VOTES,
        {"option": "red", "voter": EURO * 85 + "x"},
        {"option": "red", "voter": EURO * 85 + "xy"},
        202,
        400,
        "bad-length",
    ),
    Case(
        "VOTES_PER_REQUEST",
        VOTES,
        {"votes": [VOTE] * 1_000},
        {"votes": [VOTE] * 1_001},
        202,
        400,
        "bad-length",
    ),
    Case("VOTE_BODY_BYTES", VOTES, _padded(64_000, VOTE), _padded(64_001, VOTE), 202, 413, "body-too-large"),
    Case(
        "BODY_BYTES",
        VOTES,
        _padded(1_000_000, {"votes": [VOTE]}),
        _padded(1_000_001, {"votes": [VOTE]}),
        202,
        413,
        "body-too-large",
    ),
    Case("BODY_BYTES", POLLS, _padded(1_000_000, _poll()), _padded(1_000_001, _poll()), 201, 413, "body-too-large"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request_at_its_limit_is_taken_and_one_past_it_refused(play: Play, case: Case) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        past = await stage.client.post(case.path, case.past)
        assert (past.status, past.json["code"]) == (case.refused, case.code)
        assert (await stage.client.post(case.path, case.at)).status == case.accepted

    play(scene)


@pytest.mark.parametrize("where", ["header", "id"])
def test_a_key_has_16_to_128_bytes(play: Play, where: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(voters="open")
        for size, status in ((15, 400), (limits.KEY_BYTES_MIN, 202), (limits.KEY_BYTES, 202), (129, 400)):
            key = "k" * size
            sent = {"option": "red"} if where == "header" else {"option": "red", "id": key}
            headers = {"idempotency_key": key} if where == "header" else {}
            assert (await stage.client.post(VOTES, sent, **headers)).status == status

    play(scene)


def test_the_largest_definition_fits_an_entity(play: Play) -> None:
    """1,000 options whose ids and labels are as long as they may be, and of bytes that JSON doubles."""

    async def scene(stage: Stage) -> None:
        options = [{"id": f"{number}".rjust(128, '"'), "label": "\\" * 300} for number in range(1_000)]
        pieces = [options[start : start + 400] for start in range(0, 1_000, 400)]
        made = await stage.client.post(POLLS, _poll(title='"' * 1_500, options=pieces[0]))
        assert made.status == 201
        for revision, piece in enumerate(pieces[1:], 1):
            change = {"revision": revision, "add_options": piece}
            assert (await stage.client.send("PATCH", "/v1/polls/other", change)).status == 200
        ids = [option["id"] for option in options]
        withdrawal = {"revision": 3, "withdraw_options": ids}
        assert (await stage.client.send("PATCH", "/v1/polls/other", withdrawal)).status == 200
        more = {"revision": 4, "add_options": [{"id": "one-more"}]}
        assert (await stage.client.send("PATCH", "/v1/polls/other", more)).status == 400

    play(scene)


@pytest.mark.parametrize(("levels", "good"), [(limits.JSON_DEPTH, True), (limits.JSON_DEPTH + 1, False)])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_json_nests_so_deep_and_no_deeper(levels: int, good: bool, begin: bytes, end: bytes) -> None:
    nested = begin * levels + b"1" + end * levels
    if good:
        body.parse(nested)
    else:
        with pytest.raises(InvalidInput, match="deeper than 32 levels"):
            body.parse(nested)


@pytest.mark.parametrize(
    "wrong",
    [b"", b"[NaN]", b"[1e999]", b"[-1e999]", b'{"a":1,"a":1}', b'["\\ud800"]', b"[\xff]", b"[" * 100_000, b"1 2"],
)
def test_json_of_any_shape_is_read_strictly(wrong: bytes) -> None:
    with pytest.raises(InvalidInput):
        body.parse(wrong)


@pytest.mark.parametrize("value", [None, 1, 1.5, "\u20ac", [1, [2]], {"a": {"b": []}, "c": None}])
def test_json_of_any_shape_is_read(value: object) -> None:
    assert body.parse(msgspec.json.encode(value)) == value
