"""The message: columns of votes as JSON, the wire format between function and worker.

    {"v":1,"groups":[{"poll":"…","options":["red","blue"],"ballots":"<base64 of n × 16 bytes>",
                      "choices":[0,1,…],"accepted_at":[µs,…]}]}

`choices` number the group's own `options`. Any language can write it; decoder.py reads it, and trusts none of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tally import limits
from tally.votes.records import INSTANT_LIMIT, Mask, Words

VERSION = 1
BALLOT_BYTES = 16
to_json = msgspec.json.Encoder().encode


class Vote(NamedTuple):
    """One vote on its way to the worker: `ballot` is 16 bytes, `accepted_at` µs since 1970."""

    poll: str
    option: str
    ballot: bytes
    accepted_at: int


class Group(msgspec.Struct, gc=False):
    """Columns as they stand in a message; what is out of these ranges does not decode. No message has more options."""

    poll: str
    options: list[str]
    ballots: bytes
    choices: list[Annotated[int, msgspec.Meta(ge=0, lt=int(limits.MESSAGE_BYTES))]]
    accepted_at: list[Annotated[int, msgspec.Meta(gt=0, lt=INSTANT_LIMIT)]]


class Message(msgspec.Struct, gc=False):
    v: int
    groups: list[Group]


@dataclass(slots=True)
class Draft:
    """Columns of one poll while they grow; `numbers` maps option ids to `choices`."""

    numbers: dict[str, int] = field(default_factory=dict)
    ballots: list[bytes] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Columns:
    """Votes for one poll out of several messages: `choice` numbers `options`, `owner` the messages."""

    poll: str
    options: tuple[str, ...]
    high: Words
    low: Words
    choice: NDArray[np.intp]
    accepted_at: Words
    owner: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.owner)

    def rows(self, rows: Mask | NDArray[np.intp]) -> "Columns":
        return Columns(
            self.poll,
            self.options,
            self.high[rows],
            self.low[rows],
            self.choice[rows],
            self.accepted_at[rows],
            self.owner[rows],
        )

    def encode(self) -> bytes:
        """Return these votes as one message again, for a dead letter."""
        ballots = np.stack([self.high, self.low], axis=1).astype(">u8").tobytes()
        used, choices = np.unique(self.choice, return_inverse=True)
        options = [self.options[number] for number in used]
        group = Group(self.poll, options, ballots, choices.tolist(), self.accepted_at.tolist())
        return to_json(Message(VERSION, [group]))


def encode(votes: Iterable[Vote]) -> bytes:
    """Pack votes of any polls into one message; the caller keeps it within MESSAGE_VOTES and MESSAGE_BYTES."""
    drafts: dict[str, Draft] = {}
    for poll, option, ballot, accepted_at in votes:
        draft = drafts.get(poll) or drafts.setdefault(poll, Draft())
        draft.choices.append(draft.numbers.setdefault(option, len(draft.numbers)))
        draft.ballots.append(ballot)
        draft.accepted_at.append(accepted_at)
    groups = [
        Group(poll, list(draft.numbers), b"".join(draft.ballots), draft.choices, draft.accepted_at)
        for poll, draft in drafts.items()
    ]
    return to_json(Message(VERSION, groups))
