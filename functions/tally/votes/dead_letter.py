"""Dead letters: votes that the worker refused, and what it could not decode. Pure.

A refused vote is kept whole, in the ordinary message form, so that it can be replayed; each letter holds the votes that
were refused for one reason. What cannot be decoded is cut, with the SHA-256 of the whole. Attributes: `reason`,
`published_at` (µs, of the original, kept through replays), `message_id`, and for undecodable ones `sha256`.
"""

from binascii import a2b_base64
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from tally import limits
from tally.ports import Outgoing, Received
from tally.votes.batch import BALLOT_BYTES

REASON: Final = "reason"
PUBLISHED_AT: Final = "published_at"


class _Group(msgspec.Struct):
    poll: str
    options: list[str]
    ballots: str
    choices: list[object]
    accepted_at: list[object]


class _Message(msgspec.Struct):
    groups: list[_Group]


_decode = msgspec.json.Decoder(_Message).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterVote:
    """One vote as the letter has it; what is unsound in it is None."""

    poll: str
    option: str | None
    ballot: str
    accepted_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """`id` names the letter, `message_id` the message that it was in. `sha256` is of the whole of one that could not be
    decoded, of which `data` may be a part; such a letter cannot be replayed. Instants in µs."""

    id: str
    reason: str
    message_id: str
    published_at: int
    died_at: int
    sha256: str
    data: bytes
    polls: tuple[str, ...]
    votes: int
    ack_id: str

    @property
    def replayable(self) -> bool:
        return not self.sha256


def published_at(message: Received) -> int:
    """Return when the votes were first published: a replay carries it, else it is the message's own time."""
    if not message.attributes:
        return message.publish_time
    given = message.attributes.get(PUBLISHED_AT, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 18 else message.publish_time


def refused(message_id: str, published: int, reason: str, data: bytes) -> Outgoing:
    """Return the letter of refused votes; `data` is a message that holds just these."""
    return Outgoing(data, {REASON: reason, PUBLISHED_AT: str(published), "message_id": message_id})


def undecodable(message: Received, reason: str, data: bytes) -> Outgoing:
    """Return the letter of a message, or of groups in it, that cannot be decoded."""
    letter = refused(message.message_id, published_at(message), reason, data[: limits.DEAD_LETTER_BYTES])
    return Outgoing(letter.data, {**letter.attributes, "sha256": sha256(data).hexdigest()})


def parse(message: Received) -> Letter:
    """Read a message of the dead-letter subscription; one that is not a worker's is a letter with the reason `?`."""
    attributes = message.attributes or {}
    sha256 = attributes.get("sha256", "")
    groups = _groups(message.data)
    return Letter(
        id=message.message_id,
        reason=attributes.get(REASON, "?"),
        message_id=attributes.get("message_id", ""),
        published_at=published_at(message),
        died_at=message.publish_time,
        sha256=sha256 if groups or sha256 else "unknown",
        data=message.data,
        polls=tuple(dict.fromkeys(group.poll for group in groups)),
        votes=sum(len(group.choices) for group in groups),
        ack_id=message.ack_id,
    )


def votes(letter: Letter) -> Iterator[LetterVote]:
    """Yield the votes in a letter, in order; none if it cannot be decoded."""
    for group in _groups(letter.data):
        try:
            ballots = a2b_base64(group.ballots)
        except ValueError:
            ballots = b""
        for row, (choice, instant) in enumerate(zip(group.choices, group.accepted_at, strict=False)):
            known = type(choice) is int and 0 <= choice < len(group.options)
            yield LetterVote(
                poll=group.poll,
                option=group.options[choice] if known and isinstance(choice, int) else None,
                ballot=ballots[row * BALLOT_BYTES : (row + 1) * BALLOT_BYTES].hex(),
                accepted_at=instant if isinstance(instant, int) else None,
            )


def _groups(data: bytes) -> list[_Group]:
    try:
        return _decode(data).groups
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return []
