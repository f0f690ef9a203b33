"""Decodes messages, the hostile ones too. It trusts none: broken JSON costs the message, columns that disagree cost the
group, a bad choice or instant costs that vote.

A message of a later version is let go, never a dead letter: workers are deployed before functions.
"""

from binascii import a2b_base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import msgspec
import numpy as np

from tally import limits
from tally.ports import Outgoing, Received
from tally.votes import dead_letter
from tally.votes.batch import BALLOT_BYTES, VERSION, Columns, Draft, Group, Message, base64, to_json
from tally.votes.records import INSTANT_LIMIT

_UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class _AnyVersion(msgspec.Struct):
    v: int


class _LooseMessage(msgspec.Struct):
    groups: list[msgspec.Raw]


class _LooseGroup(msgspec.Struct):
    poll: str
    options: list[str]
    ballots: str
    choices: list[object]
    accepted_at: list[object]


_decode = msgspec.json.Decoder(Message).decode
_decode_version = msgspec.json.Decoder(_AnyVersion).decode
_decode_loose = msgspec.json.Decoder(_LooseMessage).decode
_decode_loose_group = msgspec.json.Decoder(_LooseGroup).decode


@dataclass(slots=True)
class _Rest:
    """What a message holds that cannot be counted: single votes, and whole groups as they came."""

    votes: list[_LooseGroup] = field(default_factory=list)
    groups: list[bytes] = field(default_factory=list)


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
    """Decode the messages of a Pull together, so that numpy works on long columns even at one vote a message.

    The messages are numbered from `first`.
    """
    decoder = _Decoder()
    for number, message in enumerate(messages, start=first):
        decoder.add(number, message)
    return Decoded(decoder.columns(), decoder.votes, decoder.letters, decoder.newer)


class _Decoder:
    def __init__(self) -> None:
        self._drafts: dict[str, Draft] = {}
        self.votes: dict[int, int] = {}
        self.letters: dict[int, list[Outgoing]] = {}
        self.newer: list[int] = []

    def columns(self) -> tuple[Columns, ...]:
        return tuple(_columns(poll, draft) for poll, draft in self._drafts.items() if draft.owner)

    def add(self, number: int, message: Received) -> None:
        self.votes[number] = 0
        if len(message.data) > limits.MESSAGE_BYTES:
            self._undecodable(number, message, "message-too-large")
            return
        try:
            decoded = _decode(message.data)
        except _UNDECODABLE:
            self._add_loose(number, message)
            return
        if decoded.v == VERSION and len(decoded.groups) == 1 and self._take_one(number, decoded.groups[0]):
            return
        if decoded.v != VERSION:
            self._other_version(number, message, decoded.v)
        elif _too_many(message.data, decoded):
            self._undecodable(number, message, "too-many-votes")
        else:
            unsound = [group for group in decoded.groups if not self._take(number, group)]
            if unsound:
                rest = _Rest()
                for group in unsound:
                    self._take_votes(number, group, to_json(group), rest)
                self._add_rest(number, message, rest)

    def _add_loose(self, number: int, message: Received) -> None:
        try:
            version = _decode_version(message.data).v
            groups = _decode_loose(message.data).groups if version == VERSION else []
        except _UNDECODABLE:
            self._undecodable(number, message, "undecodable")
            return
        if version != VERSION:
            self._other_version(number, message, version)
        rest = _Rest()
        for raw in groups:
            try:
                group = _decode_loose_group(raw)
            except _UNDECODABLE:
                rest.groups.append(bytes(raw))
                continue
            if self.votes[number] + len(group.choices) > limits.MESSAGE_VOTES:
                rest.groups.append(bytes(raw))
            else:
                self._take_votes(number, group, bytes(raw), rest)
        self._add_rest(number, message, rest)

    def _take_one(self, number: int, group: Group) -> bool:
        """Take in a message's only group, of one sound vote, as a quiet function sends; False for any other group.

        A Pull is mostly made of these, so that all is in one body: a call would cost as much as what it does.
        """
        if len(group.choices) != 1 or len(group.accepted_at) != 1:
            return False
        (choice,), (instant,) = group.choices, group.accepted_at
        try:
            ballot = a2b_base64(group.ballots, strict_mode=True)
        except ValueError:
            return False
        if len(ballot) != BALLOT_BYTES or not (0 <= choice < len(group.options) and 0 < instant < INSTANT_LIMIT):
            return False
        draft = self._drafts.get(group.poll) or self._draft(group.poll)
        draft.ballots.append(ballot)
        draft.choices.append(draft.number(group.options[choice]))
        draft.accepted_at.append(instant)
        draft.owner.append(number)
        self.votes[number] = 1
        return True

    def _take(self, number: int, group: Group) -> bool:
        """Take in a group whose every vote is sound; False if one may not be."""
        count = len(group.choices)
        if not count:
            return not group.ballots and not group.accepted_at
        try:
            ballots = a2b_base64(group.ballots, strict_mode=True)
        except ValueError:
            return False
        if len(ballots) != count * BALLOT_BYTES or len(group.accepted_at) != count:
            return False
        if (
            min(group.choices) < 0
            or max(group.choices) >= len(group.options)
            or min(group.accepted_at) <= 0
            or max(group.accepted_at) >= INSTANT_LIMIT
        ):
            return False
        draft = self._draft(group.poll)
        numbers = [draft.number(option) for option in group.options]
        draft.ballots.append(ballots)
        draft.choices += [numbers[choice] for choice in group.choices]
        draft.accepted_at += group.accepted_at
        draft.owner += [number] * count
        self.votes[number] += count
        return True

    def _take_votes(self, number: int, group: Group | _LooseGroup, raw: bytes, rest: _Rest) -> None:
        """Take in the sound votes of a group; the rest of it, or all of it if its columns disagree, goes to `rest`."""
        try:
            ballots = a2b_base64(group.ballots, strict_mode=True)
        except ValueError:
            ballots = b"?"
        count = len(group.choices)
        if len(ballots) != count * BALLOT_BYTES or len(group.accepted_at) != count:
            rest.groups.append(raw)
            return
        draft = self._draft(group.poll)
        bad = []
        for row, (choice, instant) in enumerate(zip(group.choices, group.accepted_at, strict=True)):
            if _within(choice, len(group.options)) and _within(instant, INSTANT_LIMIT) and instant:
                draft.ballots.append(ballots[row * BALLOT_BYTES : (row + 1) * BALLOT_BYTES])
                draft.choices.append(draft.number(group.options[choice]))
                draft.accepted_at.append(instant)
                draft.owner.append(number)
                self.votes[number] += 1
            else:
                bad.append(row)
        if bad:
            ids = b"".join(ballots[row * BALLOT_BYTES : (row + 1) * BALLOT_BYTES] for row in bad)
            choices, instants = [group.choices[row] for row in bad], [group.accepted_at[row] for row in bad]
            rest.votes.append(_LooseGroup(group.poll, group.options, base64(ids), choices, instants))

    def _add_rest(self, number: int, message: Received, rest: _Rest) -> None:
        if rest.votes:
            data = to_json({"v": VERSION, "groups": rest.votes})
            published = dead_letter.published_at(message)
            self._letter(number, dead_letter.refused(message.message_id, published, "bad-vote", data))
        if rest.groups:
            data = b'{"v":%d,"groups":[%s]}' % (VERSION, b",".join(rest.groups))
            self._letter(number, dead_letter.undecodable(message, "bad-group", data))

    def _draft(self, poll: str) -> Draft:
        return self._drafts.get(poll) or self._drafts.setdefault(poll, Draft())

    def _other_version(self, number: int, message: Received, version: int) -> None:
        if version > VERSION:
            del self.votes[number]
            self.newer.append(number)
        else:
            self._undecodable(number, message, "undecodable")

    def _letter(self, number: int, letter: Outgoing) -> None:
        self.letters.setdefault(number, []).append(letter)

    def _undecodable(self, number: int, message: Received, reason: str) -> None:
        self._letter(number, dead_letter.undecodable(message, reason, message.data))


def _too_many(data: bytes, message: Message) -> bool:
    """Tell whether a message has more votes than its limit; a vote takes more than one byte."""
    return (
        len(data) > limits.MESSAGE_VOTES and sum(len(group.choices) for group in message.groups) > limits.MESSAGE_VOTES
    )


def _within(value: object, limit: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < limit


def _columns(poll: str, draft: Draft) -> Columns:
    ballots = np.frombuffer(b"".join(draft.ballots), ">u8").reshape(-1, 2)
    return Columns(
        poll,
        tuple(draft.numbers),
        ballots[:, 0].astype(np.uint64),
        ballots[:, 1].astype(np.uint64),
        np.array(draft.choices, np.intp),
        np.array(draft.accepted_at, np.uint64),
        np.array(draft.owner, np.intp),
    )
