"""The message: columns of votes as JSON, the wire format between function and worker.

    {"v":1,"groups":[{"poll":"…","options":["red","blue"],"ballots":"<base64 of n × 16 bytes>",
                      "choices":[0,1,…],"accepted_at":[µs,…]}]}

`choices` number the group's own `options`. Any language can write it; the worker trusts none of it.
"""

from binascii import b2a_base64
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

VERSION = 1


class Vote(NamedTuple):
    """One vote on its way to the worker: `ballot` is 16 bytes, `accepted_at` µs since 1970."""

    poll: str
    option: str
    ballot: bytes
    accepted_at: int


class Group(msgspec.Struct):
    poll: str
    options: list[str]
    ballots: str
    choices: list[int]
    accepted_at: list[int]


class Message(msgspec.Struct):
    v: int
    groups: list[Group]


_encode = msgspec.json.Encoder().encode


class _Columns:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.ballots: list[bytes] = []
        self.choices: list[int] = []
        self.accepted_at: list[int] = []


def encode(votes: Iterable[Vote]) -> bytes:
    """Pack votes of any polls into one message; the caller keeps it within MESSAGE_VOTES and MESSAGE_BYTES."""
    polls: dict[str, _Columns] = {}
    for poll, option, ballot, accepted_at in votes:
        columns = polls.get(poll) or polls.setdefault(poll, _Columns())
        columns.choices.append(columns.numbers.setdefault(option, len(columns.numbers)))
        columns.ballots.append(ballot)
        columns.accepted_at.append(accepted_at)
    groups = [
        Group(
            poll,
            list(columns.numbers),
            b2a_base64(b"".join(columns.ballots), newline=False).decode(),
            columns.choices,
            columns.accepted_at,
        )
        for poll, columns in polls.items()
    ]
    return _encode(Message(VERSION, groups))


def topic(base: str, poll: str, partition: int) -> str:
    """Return the topic that takes the votes of a partition: one for all, until the stream is split."""
    return base
