"""Decodes messages, the hostile ones too. It trusts none: broken JSON costs the message, columns that disagree cost the
group, a bad choice or instant costs that vote.

A message of a later version is let go, never a dead letter: workers are deployed before functions.
"""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeGuard, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tally import limits
from tally.ports import Outgoing, Received
from tally.votes import dead_letter
from tally.votes.batch import BALLOT_BYTES, VERSION, Columns, Group, Message, to_json
from tally.votes.records import INSTANT_LIMIT

Number = TypeVar("Number", bound=np.number)

_UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class _AnyVersion(msgspec.Struct):
    v: int


class _LooseMessage(msgspec.Struct):
    groups: list[msgspec.Raw]


class _LooseGroup(msgspec.Struct):
    poll: str
    options: list[str]
    ballots: bytes
    choices: list[object]
    accepted_at: list[object]


_decode = msgspec.json.Decoder(Message).decode
_decode_version = msgspec.json.Decoder(_AnyVersion).decode
_decode_loose = msgspec.json.Decoder(_LooseMessage).decode
_decode_loose_group = msgspec.json.Decoder(_LooseGroup).decode


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the messages hold, by message number: how many votes, the dead letters of what cannot be counted.

    `newer` messages are of a later version, to be let go, and in neither.
    """

    columns: tuple[Columns, ...]
    votes: dict[int, int]
    letters: dict[int, list[Outgoing]]
    newer: list[int]


def decode(messages: Sequence[Received], first: int = 0) -> Decoded:
    """Decode messages together, of one Pull or several, so that numpy works on long columns even at one vote a message.

    The messages are numbered from `first`.
    """
    decoder = _Decoder()
    decoder.add(messages, first)
    columns = decoder.columns()
    for number, rest in decoder.rests.items():
        decoder.add_rest(number, messages[number - first], rest)
    votes = np.zeros(len(messages), np.intp)
    for part in columns:
        votes += np.bincount(part.owner - first, minlength=len(messages))
    by_number = dict(enumerate(votes.tolist(), start=first))
    for number in decoder.newer:
        del by_number[number]
    return Decoded(columns, by_number, decoder.letters, decoder.newer)


@dataclass(slots=True)
class _Groups:
    """Groups for one poll, and the number of each one's message."""

    groups: list[Group] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    def columns(self, poll: str) -> Columns | None:
        """Return the votes; None if the columns of some group disagree, or a choice is none of its options."""
        groups = self.groups
        choices, options = [group.choices for group in groups], [group.options for group in groups]
        instants, ballots = [group.accepted_at for group in groups], [group.ballots for group in groups]
        votes, of_options = _lengths(choices), _lengths(options)
        if (_lengths(instants) != votes).any() or (_lengths(ballots) != votes * BALLOT_BYTES).any():
            return None
        choice = _joined(choices, np.intp)
        if (choice >= np.repeat(of_options, votes)).any():
            return None
        numbers: dict[str, int] = {}
        option = [numbers.setdefault(one, len(numbers)) for one in chain.from_iterable(options)]
        # Among those of all groups a group's own options begin where those of the groups before it end.
        choice += np.repeat(np.cumsum(of_options) - of_options, votes)
        words = np.frombuffer(b"".join(ballots), ">u8").reshape(-1, 2)
        return Columns(
            poll,
            tuple(numbers),
            words[:, 0].astype(np.uint64),
            words[:, 1].astype(np.uint64),
            np.array(option, np.intp)[choice],
            _joined(instants, np.uint64),
            np.repeat(np.array(self.owners, np.intp), votes),
        )


@dataclass(slots=True)
class _Rest:
    """What a message holds that cannot be counted: single votes, and whole groups as they came."""

    votes: list[_LooseGroup] = field(default_factory=list)
    groups: list[bytes] = field(default_factory=list)


class _Decoder:
    def __init__(self) -> None:
        self._polls: dict[str, _Groups] = {}
        self.rests: dict[int, _Rest] = {}
        self.letters: dict[int, list[Outgoing]] = {}
        self.newer: list[int] = []

    def add(self, messages: Sequence[Received], first: int) -> None:
        """Take messages in, most of them in this one body: calls would cost as much as what they do."""
        polls = self._polls
        for number, message in enumerate(messages, start=first):
            data = message.data
            if len(data) > limits.MESSAGE_BYTES:
                self._undecodable(number, message, "message-too-large")
                continue
            try:
                decoded = _decode(data)
            except _UNDECODABLE:
                self._add_loose(number, message)
                continue
            if decoded.v != VERSION:
                self._other_version(number, message, decoded.v)
            elif len(data) > limits.MESSAGE_VOTES and _votes(decoded) > limits.MESSAGE_VOTES:
                self._undecodable(number, message, "too-many-votes")  # a vote takes more than one byte
            else:
                for group in decoded.groups:
                    of_poll = polls.get(group.poll) or polls.setdefault(group.poll, _Groups())
                    of_poll.groups.append(group)
                    of_poll.owners.append(number)

    def columns(self) -> tuple[Columns, ...]:
        return tuple(columns for poll in self._polls if len(columns := self._columns(poll)))

    def add_rest(self, number: int, message: Received, rest: _Rest) -> None:
        if rest.votes:
            data = to_json({"v": VERSION, "groups": rest.votes})
            published = dead_letter.published_at(message)
            self._letter(number, dead_letter.refused(message.message_id, published, "bad-vote", data))
        if rest.groups:
            data = b'{"v":%d,"groups":[%s]}' % (VERSION, b",".join(rest.groups))
            self._letter(number, dead_letter.undecodable(message, "bad-group", data))

    def _columns(self, poll: str) -> Columns:
        taken = self._polls[poll]
        if (columns := taken.columns(poll)) is None:
            self._polls[poll] = sound = _Groups()
            for number, group in zip(taken.owners, taken.groups, strict=True):
                self._take_sound(number, group, to_json(group))
            columns = sound.columns(poll)
            assert columns is not None, "sound votes alone agree"
        return columns

    def _add_loose(self, number: int, message: Received) -> None:
        try:
            version = _decode_version(message.data).v
            raws = _decode_loose(message.data).groups if version == VERSION else []
        except _UNDECODABLE:
            self._undecodable(number, message, "undecodable")
            return
        if version != VERSION:
            self._other_version(number, message, version)
        votes = 0
        for raw in map(bytes, raws):
            try:
                group = _decode_loose_group(raw)
            except _UNDECODABLE:
                self._rest(number).groups.append(raw)
                continue
            votes += len(group.choices)
            if votes > limits.MESSAGE_VOTES:
                self._rest(number).groups.append(raw)
            else:
                self._take_sound(number, group, raw)

    def _take_sound(self, number: int, group: Group | _LooseGroup, raw: bytes) -> None:
        """Take in the sound votes of a group. The rest of it, or all if its columns disagree, cannot be counted."""
        count = len(group.choices)
        if len(group.ballots) != count * BALLOT_BYTES or len(group.accepted_at) != count:
            self._rest(number).groups.append(raw)
            return
        sound, bad = (_LooseGroup(group.poll, group.options, b"", [], []) for _ in range(2))
        for row, (choice, instant) in enumerate(zip(group.choices, group.accepted_at, strict=True)):
            part = sound if _within(choice, len(group.options)) and _within(instant, INSTANT_LIMIT) and instant else bad
            part.ballots += group.ballots[row * BALLOT_BYTES : (row + 1) * BALLOT_BYTES]
            part.choices.append(choice)
            part.accepted_at.append(instant)
        of_poll = self._polls.setdefault(group.poll, _Groups())
        of_poll.groups.append(msgspec.convert(sound, Group, from_attributes=True))
        of_poll.owners.append(number)
        if bad.choices:
            self._rest(number).votes.append(bad)

    def _rest(self, number: int) -> _Rest:
        return self.rests.setdefault(number, _Rest())

    def _other_version(self, number: int, message: Received, version: int) -> None:
        if version > VERSION:
            self.newer.append(number)
        else:
            self._undecodable(number, message, "undecodable")

    def _undecodable(self, number: int, message: Received, reason: str) -> None:
        self._letter(number, dead_letter.undecodable(message, reason, message.data))

    def _letter(self, number: int, letter: Outgoing) -> None:
        self.letters.setdefault(number, []).append(letter)


def _votes(message: Message) -> int:
    return sum(len(group.choices) for group in message.groups)


def _lengths(columns: Iterable[Sized]) -> NDArray[np.intp]:
    return np.fromiter(map(len, columns), np.intp)


def _joined(columns: Iterable[Sequence[int]], dtype: type[Number]) -> NDArray[Number]:
    return np.array(list(chain.from_iterable(columns)), dtype)


def _within(value: object, limit: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < limit
