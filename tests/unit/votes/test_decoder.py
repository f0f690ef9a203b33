"""What the decoder makes of messages, the hostile ones too: their neighbours are always counted."""

import base64
import hashlib
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally import limits
from tally.ports import Received
from tally.votes import batch, decoder
from tally.votes.batch import Columns, Vote
from tally.votes.decoder import Decoded

AT = 1_900_000_000_000_000


def vote(number: int = 0, poll: str = "p", option: str = "red", at: int = AT) -> Vote:
    return Vote(poll, option, number.to_bytes(16, "big"), at)


def message(data: bytes, **attributes: str) -> Received:
    return Received("ack", "id", AT + 7, data, attributes)


BALLOTS = base64.b64encode((1).to_bytes(16, "big") + (2).to_bytes(16, "big")).decode()


def group(**changes: object) -> dict[str, object]:
    good = {"poll": "p", "options": ["red", "blue"], "ballots": BALLOTS, "choices": [0, 1], "accepted_at": [AT, AT + 1]}
    return {**good, **changes}


def wire(*groups: object, **changes: object) -> bytes:
    return msgspec.json.encode({"v": 1, "groups": groups, **changes})


def taken(decoded: Decoded) -> list[tuple[int, Vote]]:
    """Return every decoded vote with its message's number."""
    return [
        (int(columns.owner[row]), Vote(columns.poll, option(columns, row), ballot(columns, row), at(columns, row)))
        for columns in decoded.columns
        for row in range(len(columns))
    ]


def option(columns: Columns, row: int) -> str:
    return str(columns.options[columns.choice[row]])


def ballot(columns: Columns, row: int) -> bytes:
    return int(columns.high[row]).to_bytes(8, "big") + int(columns.low[row]).to_bytes(8, "big")


def at(columns: Columns, row: int) -> int:
    return int(columns.accepted_at[row])


votes = st.lists(
    st.builds(
        Vote,
        st.sampled_from(["p", "q"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.binary(min_size=16, max_size=16),
        st.integers(1, 2**54 - 1),
    ),
    max_size=20,
)


@given(st.lists(votes, max_size=5))
def test_votes_come_back_with_their_message(messages: list[list[Vote]]) -> None:
    decoded = decoder.decode([message(batch.encode(content)) for content in messages], first=10)
    expected = [(number, made) for number, content in enumerate(messages, 10) for made in content]
    assert sorted(taken(decoded)) == sorted(expected)
    assert decoded.votes == {number: len(content) for number, content in enumerate(messages, 10)}
    assert all(type(count) is int for count in decoded.votes.values())
    assert not decoded.letters
    assert not decoded.newer


HOSTILE: Mapping[str, tuple[bytes, str]] = {
    "empty": (b"", "undecodable"),
    "not JSON": (b"\x00\xff\xfe{", "undecodable"),
    "another shape": (b"[1,2,3]", "undecodable"),
    "no version": (b'{"groups":[]}', "undecodable"),
    "a version that never was": (wire(v=0), "undecodable"),
    "groups that are no list": (b'{"v":1,"groups":{"a":1}}', "undecodable"),
    "deep nesting": (b'{"v":1,"groups":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "undecodable"),
    "a group that is no object": (wire(group(), 7)[:-2] + b"]}", "bad-group"),
    "a poll that is no text": (wire(group(poll=7)), "bad-group"),
    "no base64": (wire(group(ballots="!")), "bad-group"),
    "text beyond ASCII for base64": (wire(group(ballots="é" * 43 + "=")), "bad-group"),
    "base64 with white space": (wire(group(ballots=BALLOTS[:8] + " " + BALLOTS[8:])), "bad-group"),
    "ballots that nobody chose for": (wire(group(choices=[], accepted_at=[])), "bad-group"),
    "instants that nobody chose at": (wire(group(choices=[], ballots="")), "bad-group"),
    "an old version of another shape": (b'{"v":0,"groups":{"a":1}}', "undecodable"),
    "a ballot cut short": (wire(group(ballots=base64.b64encode(bytes(31)).decode())), "bad-group"),
    "a ballot too many": (wire(group(ballots=base64.b64encode(bytes(48)).decode())), "bad-group"),
    "an instant too few": (wire(group(accepted_at=[AT])), "bad-group"),
    "a choice too many": (wire(group(choices=[0, 1, 1])), "bad-group"),
    "a choice past the options": (wire(group(choices=[0, 2])), "bad-vote"),
    "a negative choice": (wire(group(choices=[0, -1])), "bad-vote"),
    "a choice that is text": (wire(group(choices=[0, "1"])), "bad-vote"),
    "a choice that is null": (wire(group(choices=[0, None])), "bad-vote"),
    "a choice that is true": (wire(group(choices=[0, True])), "bad-vote"),
    "an instant that is text": (wire(group(accepted_at=[AT, "x"])), "bad-vote"),
    "an instant of zero": (wire(group(accepted_at=[AT, 0])), "bad-vote"),
    "an instant past the limit": (wire(group(accepted_at=[AT, 2**54])), "bad-vote"),
    "an instant past 64 bits": (wire(group(accepted_at=[AT, 2**70])), "bad-vote"),
    "an instant with a fraction": (wire(group(accepted_at=[AT, 1.5])), "bad-vote"),
}


@pytest.mark.parametrize(("data", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_message_costs_no_more_than_itself(data: bytes, reason: str) -> None:
    good = [message(batch.encode([vote(number)])) for number in (7, 8)]
    decoded = decoder.decode([good[0], message(data), good[1]], first=5)
    by_message = [number for number, _ in taken(decoded)]
    assert {5, 7} <= set(by_message)
    assert [letter.attributes["reason"] for letter in decoded.letters[6]] == [reason]
    assert by_message.count(6) == (1 if reason == "bad-vote" else 0) + (2 if b"},7]" in data else 0)
    assert decoded.votes[6] == by_message.count(6)
    assert set(decoded.letters) == {6}


SINGLE = group(ballots=base64.b64encode(bytes(16)).decode(), choices=[0], accepted_at=[AT])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ballots": "a"}, "bad-group"),
        ({"ballots": " " + str(SINGLE["ballots"])}, "bad-group"),
        ({"ballots": base64.b64encode(bytes(15)).decode()}, "bad-group"),
        ({"choices": [2]}, "bad-vote"),
        ({"choices": [-1]}, "bad-vote"),
        ({"accepted_at": [0]}, "bad-vote"),
        ({"accepted_at": [2**54]}, "bad-vote"),
    ],
)
def test_a_lone_unsound_vote_costs_no_more_than_itself(changes: dict[str, object], reason: str) -> None:
    decoded = decoder.decode([message(wire(SINGLE)), message(wire({**SINGLE, **changes})), message(wire(SINGLE))])
    assert [number for number, _ in taken(decoded)] == [0, 2]
    assert [letter.attributes["reason"] for letter in decoded.letters[1]] == [reason]


def test_a_lone_sound_vote_in_a_version_that_never_was_is_not_counted() -> None:
    decoded = decoder.decode([message(wire(SINGLE, v=0))])
    assert (taken(decoded), reasons(decoded)) == ([], ["undecodable"])


def test_a_bad_vote_is_kept_whole_and_its_neighbour_counts() -> None:
    decoded = decoder.decode([message(wire(group(choices=[0, 99])))])
    assert [made.option for _, made in taken(decoded)] == ["red"]
    (letter,) = decoded.letters[0]
    (kept,) = msgspec.json.decode(letter.data)["groups"]
    assert kept["choices"] == [99]
    assert base64.b64decode(kept["ballots"]) == (2).to_bytes(16, "big")
    assert letter.attributes == {"reason": "bad-vote", "published_at": str(AT + 7), "message_id": "id"}


@pytest.mark.parametrize("bad", [9, "x"])
def test_bad_votes_make_one_message_in_the_wire_form_and_those_between_count(bad: object) -> None:
    ballots = [number.to_bytes(16, "big") for number in range(4)]
    text = base64.b64encode(b"".join(ballots)).decode()
    data = wire(group(ballots=text, choices=[bad, 1, bad, 0], accepted_at=[AT, AT + 1, AT + 2, AT + 3]))
    decoded = decoder.decode([message(data)])
    assert [made for _, made in taken(decoded)] == [vote(1, option="blue", at=AT + 1), vote(3, at=AT + 3)]
    assert all(len(columns.high) == len(columns.choice) == len(columns) for columns in decoded.columns)
    (letter,) = decoded.letters[0]
    refused = base64.b64encode(ballots[0] + ballots[2]).decode()
    assert letter.data == wire(group(ballots=refused, choices=[bad, bad], accepted_at=[AT, AT + 2]))


@pytest.mark.parametrize("also", [7, {"poll": 7}, group(choices=["0"])])
def test_bad_groups_make_one_message_as_they_came_and_those_between_count(also: object) -> None:
    short = group(choices=[0])
    decoded = decoder.decode([message(wire(short, group(), also, group(poll="q")))])
    assert [made.poll for _, made in taken(decoded)] == ["p", "p", "q", "q"]
    (letter,) = decoded.letters[0]
    assert letter.data == wire(short, also)
    (letter,) = decoder.decode([message(wire(short))]).letters[0]
    assert letter.data == wire(short)


def test_votes_of_a_message_with_broken_votes_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MESSAGE_VOTES", 4)
    broken = group(choices=[0, "1"])
    decoded = decoder.decode([message(wire(group(), broken))])
    assert decoded.votes[0] == 3
    assert reasons(decoded) == ["bad-vote"]
    decoded = decoder.decode([message(wire(group(), group(), broken))])
    assert decoded.votes[0] == 4
    (letter,) = decoded.letters[0]
    assert (letter.attributes["reason"], letter.data) == ("bad-group", wire(broken))


def test_what_cannot_be_decoded_is_cut_and_named_by_its_hash() -> None:
    data = b"x" * 200_000
    (letter,) = decoder.decode([message(data)]).letters[0]
    assert letter.data == data[: limits.DEAD_LETTER_BYTES]
    assert letter.attributes["sha256"] == hashlib.sha256(data).hexdigest()


def test_ten_thousand_bad_groups_make_one_letter() -> None:
    decoded = decoder.decode([message(wire(*([{}] * 10_000)))])
    assert len(decoded.letters[0]) == 1


@pytest.mark.parametrize("content", [wire(v=2), b'{"v":2,"groups":{"new":"shape"}}', b'{"v":99}'])
def test_a_message_of_a_later_version_is_let_go_not_dead_lettered(content: bytes) -> None:
    decoded = decoder.decode([message(content), message(batch.encode([vote()]))], first=5)
    assert decoded.newer == [5]
    assert not decoded.letters
    assert decoded.votes == {6: 1}


@pytest.mark.parametrize(("beyond", "reason"), [(0, None), (1, "message-too-large")])
def test_size_is_checked_before_decoding(beyond: int, reason: str | None) -> None:
    data = batch.encode([vote()])
    data += b" " * (limits.MESSAGE_BYTES - len(data) + beyond)
    decoded = decoder.decode([message(data), message(batch.encode([vote()]))])
    assert reasons(decoded) == ([reason] if reason else [])
    assert decoded.votes == {0: 0 if reason else 1, 1: 1}


@pytest.mark.parametrize(("beyond", "reason"), [(0, None), (1, "too-many-votes")])
def test_votes_of_a_message_are_limited(beyond: int, reason: str | None) -> None:
    data = batch.encode([vote(number) for number in range(limits.MESSAGE_VOTES + beyond)])
    decoded = decoder.decode([message(data)])
    assert reasons(decoded) == ([reason] if reason else [])
    assert decoded.votes[0] == (0 if reason else limits.MESSAGE_VOTES)


def test_attributes_are_hints_that_cannot_harm() -> None:
    attributes = {f"a{number}": "x" * 1_000 for number in range(100)} | {"published_at": "yesterday", "v": "9"}
    decoded = decoder.decode([message(wire(group(), {}), **attributes)])
    assert decoded.votes[0] == 2
    (letter,) = decoded.letters[0]
    assert set(letter.attributes) == {"reason", "published_at", "message_id", "sha256"}
    assert letter.attributes["published_at"] == str(AT + 7)


def test_a_replay_keeps_the_first_publication() -> None:
    (letter,) = decoder.decode([message(b"?", published_at="1234567")]).letters[0]
    assert letter.attributes["published_at"] == "1234567"


def reasons(decoded: Decoded) -> list[str]:
    assert set(decoded.letters) <= set(decoded.votes)
    return [letter.attributes["reason"] for letters in decoded.letters.values() for letter in letters]
