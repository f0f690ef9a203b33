"""Dead letters: votes that the worker refused, and what it could not decode. Pure.

A refused vote is kept whole, in the ordinary message form, so that it can be replayed; each letter holds the votes that
were refused for one reason. What cannot be decoded is cut, with the SHA-256 of the whole. Attributes: `reason`,
`published_at` (µs, of the original, kept through replays), `message_id`, and for undecodable ones `sha256`.
"""

from hashlib import sha256
from typing import Final

from tally import limits
from tally.ports import Outgoing, Received

REASON: Final = "reason"
PUBLISHED_AT: Final = "published_at"


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
