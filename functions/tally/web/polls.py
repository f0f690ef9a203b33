"""The routes of polls: reading one is for everybody, all else is for the administrator."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from tally import limits
from tally.clock import Clock, from_datetime, to_datetime
from tally.errors import Conflict
from tally.votes.definitions import Definitions
from tally.votes.edit import ID, NewOption, NewPoll, Patch
from tally.votes.poll import FOREVER, Poll, Revote, Visibility, Voters, not_found
from tally.votes.polls import PAGE_POLLS, Polls
from tally.web import answer, body, page
from tally.web.answer import Answer
from tally.web.app import Request, Route

Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class _OptionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    label: str | UnsetType = UNSET


class _PollBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    title: str
    options: list[_OptionBody]
    opens_at: Instant | UnsetType = UNSET
    closes_at: Instant | UnsetType = UNSET
    expected_votes: int | UnsetType = UNSET
    voters: Voters | UnsetType = UNSET
    revote: Revote | UnsetType = UNSET
    results: Visibility | UnsetType = UNSET
    partitions: int | UnsetType = UNSET


class _PatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last five are frozen: they are here to be refused as such."""

    revision: int
    title: str | UnsetType = UNSET
    opens_at: Instant | UnsetType = UNSET
    closes_at: Instant | UnsetType = UNSET
    add_options: list[_OptionBody] | UnsetType = UNSET
    withdraw_options: list[str] | UnsetType = UNSET
    voters: Any = UNSET
    revote: Any = UNSET
    results: Any = UNSET
    partitions: Any = UNSET
    key_version: Any = UNSET


_FROZEN = ("voters", "revote", "results", "partitions", "key_version")
_new = msgspec.json.Decoder(_PollBody)
_patch = msgspec.json.Decoder(_PatchBody)


def public_routes(definitions: Definitions, clock: Clock) -> list[Route]:
    async def get(request: Request, poll: str) -> Answer:
        now = clock.now()
        definition = await definitions.get(poll, now)
        if definition.poll.status(now) == "deleted":
            return deleted(poll)
        return answer.json(200, view(definition.poll, now), ((b"cache-control", b"public, max-age=1"),))

    return [Route("GET", "/v1/polls/{poll}", get)]


def admin_routes(polls: Polls, clock: Clock) -> list[Route]:
    async def create(request: Request) -> Answer:
        sent = body.decode(_new, await request.read(limits.BODY_BYTES))
        poll = await polls.create(_new_poll(sent))
        location = ((b"location", f"/v1/polls/{poll.id}".encode()),)
        return answer.json(201, view(poll, clock.now()), location)

    async def list_(request: Request) -> Answer:
        limit, cursor = page.wanted(request.scope["query_string"], PAGE_POLLS)
        listing = await polls.list(limit, cursor)
        now = clock.now()
        shown = [view(poll, now) for poll in listing.polls]
        return answer.json(200, {"polls": shown, "cursor": page.following(listing.cursor)})

    async def get(request: Request, poll: str) -> Answer:
        return answer.json(200, view(await polls.get(check_id(poll)), clock.now()))

    async def amend(request: Request, poll: str) -> Answer:
        sent = body.decode(_patch, await request.read(limits.BODY_BYTES))
        return answer.json(200, view(await polls.amend(check_id(poll), _changes(sent)), clock.now()))

    async def close(request: Request, poll: str) -> Answer:
        return answer.json(200, view(await polls.close(check_id(poll)), clock.now()))

    async def delete(request: Request, poll: str) -> Answer:
        return answer.json(200, view(await polls.delete(check_id(poll)), clock.now()))

    return [
        Route("POST", "/v1/polls", create),
        Route("GET", "/v1/polls", list_),
        Route("GET", "/v1/polls/{poll}", get),
        Route("PATCH", "/v1/polls/{poll}", amend),
        Route("DELETE", "/v1/polls/{poll}", delete),
        Route("POST", "/v1/polls/{poll}/close", close),
    ]


def check_id(poll: str) -> str:
    """Return a poll's id from a path; raise NotFound for what can be none, without asking the store."""
    if not ID.fullmatch(poll):
        raise not_found(poll)
    return poll


def deleted(poll: str) -> Answer:
    return answer.problem(410, "poll-deleted", f"poll {poll!r} is deleted")


def view(poll: Poll, now: int) -> dict[str, object]:
    """Return what people see of a poll."""
    return {
        "id": poll.id,
        "title": poll.title,
        "status": poll.status(now),
        "options": [_option(option.id, option.label, option.withdrawn_at) for option in poll.options],
        "opens_at": to_datetime(poll.opens_at) if poll.opens_at else None,
        "closes_at": _instant(poll.closes_at),
        "deleted_at": _instant(poll.deleted_at),
        "created_at": to_datetime(poll.created_at),
        "expected_votes": poll.expected_votes,
        "voters": poll.voters,
        "revote": poll.revote,
        "results": poll.results,
        "partitions": poll.partitions,
        "revision": poll.revision,
    }


def _option(option_id: str, label: str, withdrawn_at: int) -> dict[str, object]:
    option: dict[str, object] = {"id": option_id, "label": label}
    return option if withdrawn_at == FOREVER else {**option, "withdrawn_at": to_datetime(withdrawn_at)}


def _instant(at: int) -> datetime | None:
    return None if at == FOREVER else to_datetime(at)


def _new_poll(sent: _PollBody) -> NewPoll:
    given = {name: getattr(sent, name) for name in sent.__struct_fields__ if getattr(sent, name) is not UNSET}
    return NewPoll(**{**given, "options": _new_options(sent.options), **_instants(given)})


def _changes(sent: _PatchBody) -> Patch:
    given = {name: getattr(sent, name) for name in sent.__struct_fields__ if getattr(sent, name) is not UNSET}
    frozen = [name for name in _FROZEN if name in given]
    if frozen:
        raise Conflict(f"{frozen[0]} never changes", code="frozen-field")
    if "add_options" in given:
        given["add_options"] = _new_options(given["add_options"])
    if "withdraw_options" in given:
        given["withdraw_options"] = tuple(given["withdraw_options"])
    return Patch(**{**given, **_instants(given)})


def _new_options(options: list[_OptionBody]) -> tuple[NewOption, ...]:
    return tuple(NewOption(id=option.id, label=None if option.label is UNSET else option.label) for option in options)


def _instants(given: dict[str, Any]) -> dict[str, int]:
    return {name: from_datetime(given[name]) for name in ("opens_at", "closes_at") if name in given}
