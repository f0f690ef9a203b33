"""What a poll's ledger certifies, so that a third party can check an export and a voter a receipt. Pure.

Records are sorted by ballot id; each is 24 bytes: ballot id ‖ accepted_at · 1024 + option number (8 bytes, big-endian).

- `sha256`: SHA-256 of the header ‖ all records. Header: "tally-certificate/1" ‖ poll id ‖ number of options (2 bytes)
  ‖ option ids in order, each text as its length in UTF-8 bytes (2 bytes) ‖ the bytes.
- `root`: the Merkle tree hash of RFC 9162, section 2.1, over the records: a leaf is SHA-256(0x00 ‖ record), a node
  SHA-256(0x01 ‖ left ‖ right). Receipts are its inclusion proofs.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
import numpy as np

from tally.errors import InvalidInput, NotFound
from tally.votes.records import OPTION_BITS, RECORD_BYTES, Records, pack

_MAGIC = b"tally-certificate/1"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Of one poll: `counts` by option id, hashes in hexadecimal."""

    poll: str
    options: tuple[str, ...]
    ballots: int
    counts: dict[str, int]
    sha256: str
    root: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """That a ballot is in the tree: `path` from its leaf's sibling upwards, `index` from 0 among `size` records."""

    poll: str
    ballot: str
    option: str
    option_number: int
    accepted_at: int
    index: int
    size: int
    path: tuple[str, ...]
    root: str


def certify(poll: str, options: Sequence[str], records: Records) -> Certificate:
    """Certify live records, sorted by ballot, one a ballot."""
    counts = np.bincount(records.options, minlength=len(options)).tolist()
    if len(counts) > len(options):
        raise InvalidInput(f"a record has option number {len(counts) - 1}, the poll has {len(options)} options")
    packed = pack(records)
    return Certificate(
        poll=poll,
        options=tuple(options),
        ballots=len(records),
        counts=dict(zip(options, counts, strict=True)),
        sha256=sha256(_header(poll, options) + packed).hexdigest(),
        root=_levels(packed)[-1][0].hex(),
    )


def receipt(poll: str, options: Sequence[str], records: Records, ballot: bytes) -> Receipt:
    """Return the inclusion proof of a ballot; raise NotFound if no record has it."""
    high, low = (np.uint64(int.from_bytes(word, "big")) for word in (ballot[:8], ballot[8:]))
    rows = np.flatnonzero((records.high == high) & (records.low == low))
    if not len(rows):
        raise NotFound(f"poll {poll!r} has no ballot {ballot.hex()}", code="ballot-not-found")
    index = place = int(rows[0])
    path = []
    levels = _levels(pack(records))
    for level in levels[:-1]:
        if place ^ 1 < len(level):
            path.append(level[place ^ 1].hex())
        place //= 2
    number = int(records.options[index])
    return Receipt(
        poll=poll,
        ballot=ballot.hex(),
        option=options[number],
        option_number=number,
        accepted_at=int(records.accepted_at[index]),
        index=index,
        size=len(records),
        path=tuple(path),
        root=levels[-1][0].hex(),
    )


def holds(proof: Receipt) -> bool:
    """Tell whether the receipt's own fields lead to its root (RFC 9162, section 2.1.3.2)."""
    try:
        ballot, path = bytes.fromhex(proof.ballot), [bytes.fromhex(step) for step in proof.path]
        rank = (proof.accepted_at << OPTION_BITS | proof.option_number).to_bytes(8, "big")
    except (ValueError, OverflowError):
        return False
    if len(ballot) != RECORD_BYTES - 8 or not 0 <= proof.index < proof.size or proof.option_number >> OPTION_BITS:
        return False
    node, place, last = _leaf(ballot + rank), proof.index, proof.size - 1
    for step in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            node = _node(step, node)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            node = _node(node, step)
        place, last = place >> 1, last >> 1
    return last == 0 and node.hex() == proof.root


def _levels(packed: bytes) -> list[list[bytes]]:
    """Return the tree's nodes from the leaves to the root; an odd last node rises as it is."""
    level = [_leaf(packed[start : start + RECORD_BYTES]) for start in range(0, len(packed), RECORD_BYTES)]
    levels = [level or [sha256(b"").digest()]]
    while len(levels[-1]) > 1:
        level = levels[-1]
        above = [_node(level[place], level[place + 1]) for place in range(0, len(level) - 1, 2)]
        levels.append(above + level[len(level) & ~1 :])
    return levels


def _leaf(record: bytes) -> bytes:
    return sha256(b"\0" + record).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()


def _header(poll: str, options: Sequence[str]) -> bytes:
    return _MAGIC + _text(poll) + len(options).to_bytes(2, "big") + b"".join(map(_text, options))


def _text(value: str) -> bytes:
    data = value.encode()
    return len(data).to_bytes(2, "big") + data
