"""The polls in the store: make, read, list and change their definitions.

A change is compare-and-swap on the entity's version. When a commit's outcome is unknown, the store is read: if it holds
one of the definitions that this change tried to write, the change is done.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

import msgspec

from tally.clock import Clock
from tally.errors import Busy, Conflict, InvalidInput, Refused, Rejected, Unavailable
from tally.ports import Entity, Insert, OnConflict, Query, Store, Update, Value, read
from tally.retry import full_jitter
from tally.votes import edit, keys
from tally.votes.edit import NewPoll, Patch
from tally.votes.poll import Poll, not_found

FORMAT = 1
TRIES = 6
PAGE_POLLS = 100
_QUERY_POLLS = 10  # of at most 1 MB each: an answer that a channel takes
_PAGE_BYTES = 1_000_000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Poll).decode


def to_entity(poll: Poll) -> Entity:
    properties: dict[str, Value] = {"format": FORMAT, "definition": _encode(poll).decode()}
    return Entity(key=keys.poll(poll.id), properties=properties)


def from_entity(entity: Entity) -> Poll:
    """Return the poll of an entity; raise Busy if a newer version of Tally wrote it."""
    if entity.properties["format"] != FORMAT:
        raise Busy("the poll's definition has a format that this version does not know", retry_after=5, code="format")
    return _decode(str(entity.properties["definition"]))


class Listing(NamedTuple):
    polls: list[Poll]
    cursor: bytes | None


class Polls:
    """`key_version` names the ballot key that new polls take."""

    def __init__(self, store: Store, clock: Clock, random: Random, key_version: str) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._key_version = key_version

    async def get(self, poll_id: str) -> Poll:
        """Return the poll, a tombstone too; raise NotFound."""
        return from_entity(await self._entity(poll_id))

    async def create(self, new: NewPoll) -> Poll:
        """Make a poll; raise Conflict if its id was ever used.

        `made_by` tells the poll that an earlier try of this call made from an equal one that another call made.
        """
        poll = edit.create(new, self._clock.now(), self._key_version)
        entity = to_entity(poll)
        entity = replace(entity, properties={**entity.properties, "made_by": self._random.getrandbits(62)})
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._store.commit([Insert(entity)])
                return poll
            except (Refused, Unavailable) as error:
                stored = await self._found(poll.id)
                if stored is not None and stored.properties == entity.properties:
                    return poll
                if stored is not None:
                    raise Conflict(f"poll {poll.id!r} exists, or did once", code="poll-exists") from error
                await self._pause(attempt, error)

    async def amend(self, poll_id: str, patch: Patch) -> Poll:
        return await self._change(poll_id, lambda poll, now: edit.amend(poll, patch, now))

    async def close(self, poll_id: str) -> Poll:
        return await self._change(poll_id, edit.close)

    async def delete(self, poll_id: str) -> Poll:
        """Leave a tombstone, for ever."""
        return await self._change(poll_id, edit.delete)

    async def list(self, limit: int, cursor: bytes | None) -> Listing:
        """Return up to `limit` polls by id, without tombstones, or fewer when they are large; `cursor` goes on."""
        polls: list[Poll] = []
        size = 0
        while len(polls) < limit and size < _PAGE_BYTES:
            query = Query(kind=keys.POLL, limit=min(_QUERY_POLLS, limit - len(polls)), cursor=cursor)
            try:
                page = await self._store.query(query)
            except Rejected as error:
                raise InvalidInput("the cursor is none that was given out", code="bad-cursor") from error
            found = [from_entity(entity) for entity in page.entities]
            now = self._clock.now()
            polls += [poll for poll in found if poll.status(now) != "deleted"]
            size += sum(len(str(entity.properties["definition"])) for entity in page.entities)
            cursor = page.cursor
            if cursor is None:
                break
        return Listing(polls, cursor)

    async def _change(self, poll_id: str, change: Callable[[Poll, int], Poll]) -> Poll:
        tried: list[Poll] = []
        while True:
            entity = await self._entity(poll_id)
            stored = from_entity(entity)
            if stored in tried:
                return stored
            changed = change(stored, self._clock.now())
            if changed is stored:
                return stored
            tried.append(changed)
            update = Update(entity=to_entity(changed), base_version=entity.version, on_conflict=OnConflict.FAIL)
            try:
                await self._store.commit([update])
                return changed
            except (Refused, Unavailable) as error:
                await self._pause(len(tried), error)

    async def _entity(self, poll_id: str) -> Entity:
        entity = await self._found(poll_id)
        if entity is None:
            raise not_found(poll_id)
        return entity

    async def _found(self, poll_id: str) -> Entity | None:
        key = keys.poll(poll_id)
        found, _ = await read(self._store, [key])
        return found.get(key)

    async def _pause(self, attempt: int, error: Exception) -> None:
        """Wait before the next attempt; raise the error of the last."""
        if attempt == TRIES:
            raise error
        await asyncio.sleep(full_jitter(attempt, base=0.05, cap=1, random=self._random))
