"""The decoder has a short way for a lone sound vote, one for a sound group, and a long one for all else: they agree."""

import base64
from collections.abc import Sequence
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tally.ports import Received
from tally.votes import decoder
from tally.votes.decoder import Decoded
from tally.votes.records import INSTANT_LIMIT
from tests.unit.votes.pipeline import ballot

Row = tuple[int, str, str, int, int, int]

numbers = st.sampled_from(
    [
        *("0", "1", "2", "-0", "-1", "7", "256", "65536", "4294967296", "0.0", "1.0", "1.5", "1e0", "1E3"),
        *(str(INSTANT_LIMIT - 1), str(INSTANT_LIMIT), str(2**63 - 1), str(2**63), str(-(2**63) - 1), str(10**30)),
        *("true", "false", "null", '"1"', "[]", "{}"),
    ]
)
sound_choices = st.sampled_from(["0", "1"])
sound_instants = st.sampled_from(["1", "1900000000000000", str(INSTANT_LIMIT - 1)])
texts = st.sampled_from(['"p"', '"q"', '"é"', '""', '"\\ud800"', '"\xff"', "7"])
options = st.sampled_from(['["r","b"]', '["b","r"]', '["r"]', "[]", '["r",7]', '["r","r"]'])
extras = st.sampled_from([*[""] * 6, ',"x":1', ',"poll":"q"', ',"choices":[]', ',"accepted_at":[1]', ',"ballots":""'])


@st.composite
def groups(draw: st.DrawFn) -> str:
    """Return a group: sound as often as not, else with anything odd anywhere."""
    count = draw(st.integers(0, 3))
    sound = draw(st.booleans())
    lengths = [count] * 3 if sound else [draw(st.sampled_from([count] * 4 + [count + 1])) for _ in range(3)]
    ballots = base64.b64encode(b"".join(ballot("p", number) for number in range(lengths[0]))).decode()
    if not sound:
        ballots = draw(
            st.sampled_from([*[ballots] * 5, ballots[:-4], ballots[:-1], ballots + "\\n", " " + ballots, "é"])
        )
    choices = draw(_list(sound_choices if sound else sound_choices | numbers, lengths[1]))
    instants = draw(_list(sound_instants if sound else sound_instants | numbers, lengths[2]))
    poll, names = ('"p"', '["r","b"]') if sound else (draw(texts), draw(options))
    return (
        f'{{"poll":{poll},"options":{names},"ballots":"{ballots}","choices":[{choices}],"accepted_at":[{instants}]'
        f"{'' if sound else draw(extras)}}}"
    )


def _list(values: st.SearchStrategy[str], length: int) -> st.SearchStrategy[str]:
    return st.lists(values, min_size=length, max_size=length).map(",".join)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    version = draw(st.sampled_from([*["1"] * 8, "0", "2", "true", "1.0"]))
    content = draw(st.lists(groups() | groups() | groups() | st.sampled_from(["7", "{}"]), max_size=3))
    text = f'{{"v":{version},"groups":[{",".join(content)}]}}'
    return text.encode("latin-1", "replace") if draw(st.integers(0, 9)) == 0 else text.encode()


def decode(contents: Sequence[bytes]) -> Decoded:
    return decoder.decode([Received("ack", f"id-{n}", 1, data, {}) for n, data in enumerate(contents)])


def rows(decoded: Decoded) -> list[Row]:
    """Return the votes; within a message their order may differ, as those of unsound groups are taken last."""
    return sorted(
        (owner, columns.poll, columns.options[choice], high, low, at)
        for columns in decoded.columns
        for owner, choice, high, low, at in zip(
            columns.owner.tolist(),
            columns.choice.tolist(),
            columns.high.tolist(),
            columns.low.tolist(),
            columns.accepted_at.tolist(),
            strict=True,
        )
    )


def reasons(decoded: Decoded) -> dict[int, list[str]]:
    return {number: [one.attributes["reason"] for one in letters] for number, letters in decoded.letters.items()}


def whole(decoded: Decoded) -> object:
    return rows(decoded), decoded.votes, decoded.letters, decoded.newer


def refuse(*_: object) -> bool:
    return False


LONE = b'{"v":1,"groups":[{"poll":"p","options":["r"],"ballots":"%s","choices":[%s],"accepted_at":[%s]}]}'
BALLOT = base64.b64encode(ballot("p", 1))


@settings(max_examples=100, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=4))
@example([LONE % (BALLOT, b"0", b"%d" % (INSTANT_LIMIT - 1))])
@example([LONE % (BALLOT, b"0", b"%d" % INSTANT_LIMIT)])
@example([LONE % (BALLOT, b"0", b"0")])
@example([LONE % (BALLOT, b"1", b"1")])
@example([LONE % (BALLOT, b"-1", b"1")])
@example([LONE % (BALLOT[:-4], b"0", b"1")])
@example([LONE % (BALLOT + b"\\n", b"0", b"1")])
@example([LONE % (BALLOT, b"0", b"1,2")])
@example([LONE % (BALLOT, b"0,0", b"1")])
@example([LONE % (base64.b64encode(bytes(32)), b"0,0", b"1")])
def test_each_way_through_the_decoder_gives_the_same(contents: list[bytes]) -> None:
    expected = decode(contents)
    with mock.patch.object(decoder._Decoder, "_take_one", refuse):
        assert whole(decode(contents)) == whole(expected)
        with mock.patch.object(decoder._Decoder, "_take", refuse):
            assert whole(decode(contents)) == whole(expected)
    with mock.patch.object(decoder, "_decode", mock.Mock(side_effect=UnicodeDecodeError("utf-8", b"", 0, 1, ""))):
        loose = decode(contents)
    assert (rows(loose), loose.votes, loose.newer) == (rows(expected), expected.votes, expected.newer)
    assert reasons(loose) == reasons(expected)


@pytest.mark.parametrize("way", ["_take_one", "_take", "_take_votes"])
def test_the_messages_above_go_every_way(way: str) -> None:
    taken: list[int] = []
    original = getattr(decoder._Decoder, way)

    def seen(self: object, *arguments: object) -> object:
        answer = original(self, *arguments)
        taken.append(len(arguments) if answer is None else bool(answer))
        return answer

    @settings(max_examples=50, deadline=None, database=None, derandomize=True)
    @given(messages())
    def look(content: bytes) -> None:
        with mock.patch.object(decoder._Decoder, way, seen):
            decode([content])

    look()
    assert any(taken)
    assert way == "_take_votes" or not all(taken)
