"""A ballot's id: it makes copies of a vote one, and hides the voter from Pub/Sub and Datastore.

    id = BLAKE2b(digest_size=16, key=<key of the poll's version>) of
         len(poll) as 2 bytes ‖ poll ‖ len(voter) as 2 bytes ‖ voter [‖ index as 4 bytes]

Text is UTF-8 in NFC, numbers are unsigned and big-endian, nothing else is mixed in. `voter` is the voter's id, or in an
open poll the vote's own key; neither may have characters that Unicode has not assigned, whose normal form may change.
`index` is there only where a list of votes shares the key of its request: the place of the vote in that list, from 0.
tests/vectors.json holds vectors for other languages.
"""

from hashlib import blake2b

from tally.errors import InvalidInput
from tally.limits import KEY_BYTES, KEY_BYTES_MIN, VOTER_BYTES
from tally.votes import text

BYTES = 16


class Hasher:
    """Makes the ballot ids of one poll: the part that all share is hashed once."""

    __slots__ = ("_prefix",)

    def __init__(self, key: bytes, poll: str) -> None:
        self._prefix = blake2b(_prefixed(poll.encode()), digest_size=BYTES, key=key)

    def ballot(self, voter: str, index: int | None = None) -> bytes:
        """Return the 16-byte ballot id of a voter's id or a vote's key, both cleaned."""
        digest = self._prefix.copy()
        digest.update(_prefixed(voter.encode()))
        if index is not None:
            digest.update(index.to_bytes(4, "big"))
        return digest.digest()


def _prefixed(part: bytes) -> bytes:
    return len(part).to_bytes(2, "big") + part


def partition(ballot: bytes, partitions: int) -> int:
    """Return which of a poll's partitions keeps the ballot: its id, as a big-endian number, modulo their number."""
    return int.from_bytes(ballot, "big") % partitions


def voter(value: str | None) -> str:
    """Return the voter's id of a vote in a one-ballot poll, cleaned; it must be there."""
    if value is None:
        raise InvalidInput("voter is missing: this poll takes one ballot a voter", code="voter-missing")
    return text.identity(value, "voter", VOTER_BYTES)


def key(value: str) -> str:
    """Return an idempotency key, cleaned: short ones are refused, as strangers would share them."""
    return text.identity(value, "the idempotency key", KEY_BYTES, KEY_BYTES_MIN)
