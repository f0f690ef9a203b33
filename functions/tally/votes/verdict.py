"""What the worker says of votes: count them, or refuse them with a reason. Pure, on whole columns.

It allows GRACE at every edge that the function keeps to exactly, so that no skew, slow read or slow commit turns a vote
that was answered with 202 into a dead letter.
"""

import numpy as np
from numpy.typing import NDArray

from tally.clock import SECOND
from tally.votes.batch import Columns
from tally.votes.poll import FOREVER, GRACE, Poll
from tally.votes.records import Records, Words, ranks

# A stamp must lie between publication − OLDEST and publication + NEWEST.
OLDEST = 3_600 * SECOND
NEWEST = 60 * SECOND

REASONS = (
    "",
    "unknown-poll",
    "unknown-option",
    "accepted-at-out-of-range",
    "poll-not-open",
    "poll-closed",
    "poll-deleted",
    "option-withdrawn",
)
Verdicts = NDArray[np.uint8]


def judge(poll: Poll | None, columns: Columns, published_at: Words) -> tuple[Verdicts, Records]:
    """Return a verdict a vote (0: it counts, else an index of REASONS), and the votes as records.

    `published_at`: µs, one a vote. The records of refused votes mean nothing.
    """
    at = columns.accepted_at
    if poll is None:
        return np.full(len(columns), REASONS.index("unknown-poll"), np.uint8), Records(columns.high, columns.low, at)
    numbers = {option.id: number for number, option in enumerate(poll.options)}
    table = np.array([numbers.get(option, -1) for option in columns.options], np.intp)
    option = table[columns.choice]
    withdrawn_at = np.array([option.withdrawn_at for option in poll.options], np.uint64)[option]
    faults = (
        option < 0,
        (at + np.uint64(OLDEST) < published_at) | (at > published_at + np.uint64(NEWEST)),
        at + np.uint64(GRACE) < np.uint64(poll.opens_at),
        at > np.uint64(min(poll.closes_at, FOREVER) + GRACE),
        at > np.uint64(min(poll.deleted_at, FOREVER) + GRACE),
        at > withdrawn_at + np.uint64(GRACE),
    )
    verdicts = np.zeros(len(columns), np.uint8)
    for reason, fault in reversed(tuple(enumerate(faults, start=2))):
        verdicts[fault] = reason
    return verdicts, Records(columns.high, columns.low, ranks(at, np.maximum(option, 0)))


def partitions(records: Records, count: int) -> NDArray[np.intp]:
    """Return each record's partition: its ballot id, as a big-endian number, modulo `count` (at most 256)."""
    modulus = np.uint64(count)
    carry = np.uint64((1 << 64) % count)
    return (((records.high % modulus) * carry + records.low % modulus) % modulus).astype(np.intp)
