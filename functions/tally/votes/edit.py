"""What may become of a poll: each function returns the next definition or raises. Pure; `now` in µs since 1970.

A change that refuses votes which the poll took before (an early end, an option withdrawn) carries its instant, at least
one cache lifetime ahead, so that no function still takes by an old definition what the new one refuses.
"""

import re

import msgspec

from tally import limits
from tally.errors import Conflict, InvalidInput
from tally.votes import text
from tally.votes.poll import (
    CACHE_LIFETIME,
    FOREVER,
    GRACE,
    Option,
    Poll,
    Revote,
    Visibility,
    Voters,
    default_partitions,
)

ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
LATEST = 253_402_300_799_999_999  # the last µs of the year 9999, which is where datetimes end


class NewOption(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    label: str | None = None


class NewPoll(msgspec.Struct, frozen=True, kw_only=True):
    """What a poll is made from. Absent instants mean: open at once, and until it is closed."""

    id: str
    title: str
    options: tuple[NewOption, ...]
    opens_at: int | None = None
    closes_at: int | None = None
    expected_votes: int | None = None
    voters: Voters = "one-ballot"
    revote: Revote = "keep"
    results: Visibility = "live"
    partitions: int | None = None


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A change to revision `revision`; what is None stays as it is."""

    revision: int
    title: str | None = None
    opens_at: int | None = None
    closes_at: int | None = None
    add_options: tuple[NewOption, ...] = ()
    withdraw_options: tuple[str, ...] = ()


def create(new: NewPoll, now: int, key_version: str) -> Poll:
    """Return the first revision of a poll."""
    if not ID.fullmatch(new.id):
        raise InvalidInput(f"id {new.id!r}: want 1 to 63 of a-z 0-9 -, not first a hyphen", code="bad-id")
    opens_at = 0 if new.opens_at is None else _instant(new.opens_at, "opens_at")
    closes_at = FOREVER if new.closes_at is None else _instant(new.closes_at, "closes_at")
    if closes_at <= now:
        raise InvalidInput("closes_at has passed", code="bad-time")
    return Poll(
        id=new.id,
        title=text.clean(new.title, "title", limits.TITLE_BYTES),
        options=_options((), new.options),
        created_at=now,
        opens_at=opens_at,
        closes_at=_after(opens_at, closes_at),
        expected_votes=new.expected_votes,
        voters=new.voters,
        revote=new.revote,
        results=new.results,
        partitions=_partitions(new.partitions, new.expected_votes),
        key_version=key_version,
    )


def amend(poll: Poll, patch: Patch, now: int) -> Poll:
    """Return the poll with the patch applied; raise Conflict if another change came first or the poll has ended."""
    if patch.revision != poll.revision:
        raise Conflict(f"the poll is at revision {poll.revision}, not {patch.revision}", code="stale-revision")
    if now >= poll.ends_at:
        raise Conflict("the poll has ended", code="poll-ended")
    opens_at = poll.opens_at if patch.opens_at is None else _opening(poll, patch.opens_at, now)
    closes_at = poll.closes_at if patch.closes_at is None else _end(poll, patch.closes_at, now)
    return _next(
        poll,
        title=poll.title if patch.title is None else text.clean(patch.title, "title", limits.TITLE_BYTES),
        opens_at=opens_at,
        closes_at=_after(opens_at, closes_at),
        options=_options(_withdraw(poll.options, patch.withdraw_options, now), patch.add_options),
    )


def close(poll: Poll, now: int) -> Poll:
    """Return the poll with its end one cache lifetime ahead; one that ends sooner stays as it is.

    A poll that would open later keeps its opening, behind its end: it takes no vote at all.
    """
    end = now + CACHE_LIFETIME
    if poll.ends_at <= end:
        return poll
    return _next(poll, closes_at=end)


def delete(poll: Poll, now: int) -> Poll:
    """Return the poll's tombstone, which refuses votes from one cache lifetime ahead on."""
    return poll if poll.deleted_at != FOREVER else _next(poll, deleted_at=now + CACHE_LIFETIME)


def _next(poll: Poll, **changes: object) -> Poll:
    changed: Poll = msgspec.structs.replace(poll, revision=poll.revision + 1, **changes)
    return changed


def _instant(value: int, what: str) -> int:
    if not 0 <= value <= LATEST:
        raise InvalidInput(f"{what} lies outside the years 1970 to 9999", code="bad-time")
    return value


def _after(opens_at: int, closes_at: int) -> int:
    if closes_at <= opens_at:
        raise InvalidInput("closes_at must lie after opens_at", code="bad-time")
    return closes_at


def _opening(poll: Poll, opens_at: int, now: int) -> int:
    if opens_at > poll.opens_at and now >= poll.opens_at - GRACE:
        raise Conflict("opens_at cannot be moved later from one minute before it on", code="opening-fixed")
    return _instant(opens_at, "opens_at")


def _end(poll: Poll, closes_at: int, now: int) -> int:
    if closes_at > poll.closes_at and poll.results == "after-close" and now >= poll.closes_at - GRACE:
        raise Conflict(
            "closes_at cannot be moved later from one minute before it on: results may have been shown",
            code="end-fixed",
        )
    if closes_at < poll.closes_at and closes_at < now + CACHE_LIFETIME:
        raise InvalidInput("closes_at must lie 5 s ahead or more: to end a poll at once, close it", code="bad-time")
    return _instant(closes_at, "closes_at")


def _withdraw(options: tuple[Option, ...], ids: tuple[str, ...], now: int) -> tuple[Option, ...]:
    unknown = set(ids) - {option.id for option in options}
    if unknown:
        raise InvalidInput(f"option {min(unknown)!r} cannot be withdrawn: no such option", code="unknown-option")
    at = now + CACHE_LIFETIME
    return tuple(
        msgspec.structs.replace(option, withdrawn_at=min(option.withdrawn_at, at)) if option.id in ids else option
        for option in options
    )


def _options(old: tuple[Option, ...], new: tuple[NewOption, ...]) -> tuple[Option, ...]:
    options = old + tuple(_option(option) for option in new)
    if not 1 <= len(options) <= limits.OPTIONS:
        raise InvalidInput(f"{len(options)} options: want 1 to {limits.OPTIONS}", code="bad-options")
    seen: set[str] = set()
    for option in options:
        if option.id in seen:
            raise InvalidInput(f"option {option.id!r} is there twice", code="bad-options")
        seen.add(option.id)
    return options


def _option(new: NewOption) -> Option:
    option_id = text.clean(new.id, "an option's id", limits.OPTION_ID_BYTES)
    label = option_id if new.label is None else text.clean(new.label, "an option's label", limits.LABEL_BYTES)
    return Option(id=option_id, label=label)


def _partitions(partitions: int | None, expected_votes: int | None) -> int:
    if expected_votes is not None and expected_votes < 1:
        raise InvalidInput(f"expected_votes is {expected_votes}: want 1 or more", code="bad-size")
    chosen = default_partitions(expected_votes) if partitions is None else partitions
    if not 1 <= chosen <= limits.PARTITIONS:
        raise InvalidInput(f"partitions is {chosen}: want 1 to {limits.PARTITIONS}", code="bad-size")
    if expected_votes is not None and expected_votes > chosen * limits.VOTES_PER_PARTITION:
        raise InvalidInput(
            f"expected_votes is {expected_votes}: want at most {limits.VOTES_PER_PARTITION} for each of the"
            f" {chosen} partitions",
            code="bad-size",
        )
    return chosen
