"""A poll's definition and what it says of a vote. Pure: the instant is always given, in µs since 1970.

The function takes a vote exactly by the definition; the worker allows GRACE at every edge, so that skew, slow reads
and slow commits never turn a 202 into a dead letter.
"""

from typing import Literal

import msgspec

from tally.clock import SECOND
from tally.errors import NotFound
from tally.limits import PARTITIONS, VOTES_PER_PARTITION

CACHE_LIFETIME = 5 * SECOND
GRACE = 60 * SECOND

Voters = Literal["one-ballot", "open"]
Revote = Literal["keep", "replace"]
Visibility = Literal["live", "after-close"]
Status = Literal["scheduled", "open", "closed", "deleted"]
FOREVER = 1 << 62


class Option(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    label: str
    withdrawn_at: int = FOREVER


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """`options` only grows: an option's place is its number in the ledger for ever. `deleted_at` makes a tombstone.

    `voters`, `revote`, `partitions` and `key_version` never change; `revision` counts the changes.
    """

    id: str
    title: str
    options: tuple[Option, ...]
    created_at: int
    opens_at: int = 0
    closes_at: int = FOREVER
    deleted_at: int = FOREVER
    expected_votes: int | None = None
    voters: Voters = "one-ballot"
    revote: Revote = "keep"
    results: Visibility = "live"
    partitions: int
    key_version: str
    revision: int = 1

    def continues(self, before: "Poll") -> bool:
        """Tell whether it is a later state of that poll, and not another one under its id, of a store made anew."""
        fixed = (self.created_at, self.revote, self.partitions) == (before.created_at, before.revote, before.partitions)
        return fixed and all(new.id == old.id for new, old in zip(self.options, before.options, strict=False))

    @property
    def ends_at(self) -> int:
        return min(self.closes_at, self.deleted_at)

    def status(self, at: int) -> Status:
        if at >= self.deleted_at:
            return "deleted"
        if at >= self.closes_at:
            return "closed"
        return "scheduled" if at < self.opens_at else "open"


def not_found(poll_id: str) -> NotFound:
    return NotFound(f"no poll {poll_id!r}", code="poll-not-found")


def refusal(poll: Poll, option: Option, at: int) -> str | None:
    """Return why the function refuses a vote stamped `at`, as a stable code, or None: it takes it."""
    if at < poll.opens_at:
        return "poll-not-open"
    if at >= poll.deleted_at:
        return "poll-deleted"
    if at >= poll.closes_at:
        return "poll-closed"
    if at >= option.withdrawn_at:
        return "option-withdrawn"
    return None


def default_partitions(expected_votes: int | None) -> int:
    """Return how many partitions a poll takes that does not say: 1 below 1,000 votes, from there and if unknown 16, or
    what so many votes need; no more than there may be."""
    if expected_votes is None:
        return 16
    if expected_votes < 1_000:
        return 1
    return min(int(PARTITIONS), max(16, -(-expected_votes // VOTES_PER_PARTITION)))
