"""The decoder has a way for sound groups, one for those beside an unsound one, and one for what is odd: they agree."""

import base64
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tally.ports import Received
from tally.votes import decoder
from tally.votes.batch import Columns
from tally.votes.decoder import Decoded, _Decoder, _Groups
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
    """Return a group: sound as often as not, else of uneven columns or with anything odd anywhere."""
    kind = draw(st.sampled_from(["sound", "sound", "uneven", "odd"]))
    count = draw(st.integers(0, 3))
    lengths = [count if kind == "sound" else draw(st.sampled_from([count] * 4 + [count + 1])) for _ in range(3)]
    ballots = base64.b64encode(b"".join(ballot("p", number) for number in range(lengths[0]))).decode()
    poll, names, extra, instant = '"p"', '["r","b"]', "", sound_instants
    choice = sound_choices if kind == "sound" else st.sampled_from(["0", "1", "2"])
    if kind == "odd":
        ballots = draw(
            st.sampled_from([*[ballots] * 5, ballots[:-4], ballots[:-1], ballots + "\\n", " " + ballots, "é"])
        )
        poll, names, extra = draw(texts), draw(options), draw(extras)
        choice, instant = sound_choices | numbers, sound_instants | numbers
    choices, instants = draw(_list(choice, lengths[1])), draw(_list(instant, lengths[2]))
    columns = f'"ballots":"{ballots}","choices":[{choices}],"accepted_at":[{instants}]'
    return f'{{"poll":{poll},"options":{names},{columns}{extra}}}'


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
    with mock.patch.object(_Groups, "columns", first_refused()):
        assert whole(decode(contents)) == whole(expected)
    with mock.patch.object(decoder, "_decode", mock.Mock(side_effect=UnicodeDecodeError("utf-8", b"", 0, 1, ""))):
        loose = decode(contents)
    assert (rows(loose), loose.votes, loose.newer) == (rows(expected), expected.votes, expected.newer)
    assert reasons(loose) == reasons(expected)


def first_refused() -> Callable[[_Groups, str], Columns | None]:
    """Return a method that takes no poll's groups for sound when it is first asked."""
    columns, asked = _Groups.columns, set[str]()

    def method(groups: _Groups, poll: str) -> Columns | None:
        if poll in asked:
            return columns(groups, poll)
        asked.add(poll)
        return None

    return method


def test_the_messages_above_go_every_way() -> None:
    ways: Counter[str] = Counter()
    columns, loose, take_sound = _Groups.columns, _Decoder._add_loose, _Decoder._take_sound

    def seen_columns(groups: _Groups, poll: str) -> Columns | None:
        found = columns(groups, poll)
        ways["unsound" if found is None else "sound"] += 1
        return found

    def seen_loose(self: _Decoder, number: int, message: Received) -> None:
        ways["loose"] += 1
        loose(self, number, message)

    def seen_take_sound(self: _Decoder, *arguments: Any) -> None:
        before = len(self._polls)
        take_sound(self, *arguments)
        ways["some taken" if len(self._polls) > before else "none taken"] += 1

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(messages())
    def look(content: bytes) -> None:
        decode([content])

    with (
        mock.patch.object(_Groups, "columns", seen_columns),
        mock.patch.object(_Decoder, "_add_loose", seen_loose),
        mock.patch.object(_Decoder, "_take_sound", seen_take_sound),
    ):
        look()
    assert set(ways) == {"sound", "unsound", "loose", "some taken", "none taken"}
