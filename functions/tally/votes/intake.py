"""Intake: from a request's votes to ballots in Pub/Sub. What it returns a receipt for is accepted.

A vote is stamped first and then checked by a definition that serves its stamp, without any grace: the grace is the
worker's.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tally.clock import Stamps
from tally.errors import InvalidInput, TallyError, VoteRefused
from tally.limits import OPTION_ID_BYTES
from tally.votes import ballot, text
from tally.votes.batch import Vote
from tally.votes.definitions import Definition, Definitions
from tally.votes.microbatch import MicroBatcher
from tally.votes.poll import Option, refusal
from tally.votes.stream import Streams


class Cast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A vote as it was sent: `voter` in a one-ballot poll; in an open one maybe `id`, a key of its own."""

    option: str
    voter: str | None = None
    id: str | None = None


class Receipt(NamedTuple):
    """`retry_safe`: sending the vote again makes no second ballot."""

    ballot: bytes
    retry_safe: bool


class Intake:
    """`token` returns 16 bytes that nobody can guess."""

    def __init__(
        self,
        definitions: Definitions,
        batcher: MicroBatcher,
        stamps: Stamps,
        streams: Streams,
        token: Callable[[], bytes],
    ) -> None:
        self._definitions = definitions
        self._batcher = batcher
        self._stamps = stamps
        self._streams = streams
        self._token = token

    async def vote(self, poll_id: str, cast: Cast, key: str | None) -> Receipt:
        """Accept one vote; `key` is the request's. Raises InvalidInput, NotFound, VoteRefused, Busy."""
        at = self._stamps.next()
        definition = self._definitions.held(poll_id, at) or await self._definitions.get(poll_id, at)
        option = _check(definition, cast, at)
        receipt = self._receipt(definition, cast, key, None)
        vote = Vote(poll_id, option.id, receipt.ballot, at)
        await self._batcher.add(self._topic_of(definition, receipt), (vote,))
        return receipt

    async def votes(self, poll_id: str, casts: Sequence[Cast], key: str | None) -> list[Receipt | TallyError]:
        """Accept a list; return one outcome a vote, in order: a receipt, or why it was refused.

        Raises NotFound, and Busy if Pub/Sub did not confirm all that were not refused.
        """
        stamps = [self._stamps.next() for _ in casts]
        definition = await self._definitions.get(poll_id, stamps[-1])
        outcomes: list[Receipt | TallyError] = []
        accepted: dict[str, list[Vote]] = {}
        for index, (cast, at) in enumerate(zip(casts, stamps, strict=True)):
            try:
                option = _check(definition, cast, at)
                receipt = self._receipt(definition, cast, key, index)
            except (InvalidInput, VoteRefused) as error:
                outcomes.append(error)
                continue
            outcomes.append(receipt)
            vote = Vote(poll_id, option.id, receipt.ballot, at)
            accepted.setdefault(self._topic_of(definition, receipt), []).append(vote)
        await asyncio.gather(*[self._batcher.add(topic, votes) for topic, votes in accepted.items()])
        return outcomes

    def _topic_of(self, definition: Definition, receipt: Receipt) -> str:
        poll = definition.poll
        return self._streams.topic(poll.id, ballot.partition(receipt.ballot, poll.partitions))

    def _receipt(self, definition: Definition, cast: Cast, key: str | None, index: int | None) -> Receipt:
        if definition.poll.voters == "one-ballot":
            voter = ballot.voter(cast.voter)
            if cast.id is not None:
                raise InvalidInput("id is for open polls: this one takes one ballot a voter", code="unexpected-id")
            return Receipt(definition.hasher.ballot(voter), True)
        if cast.voter is not None:
            raise InvalidInput("voter is for one-ballot polls: this poll is open", code="unexpected-voter")
        if cast.id is not None:
            return Receipt(definition.hasher.ballot(ballot.key(cast.id)), True)
        if key is not None:
            return Receipt(definition.hasher.ballot(ballot.key(key), index), True)
        return Receipt(self._token(), False)


def _check(definition: Definition, cast: Cast, at: int) -> Option:
    option = definition.options.get(cast.option) or _normalised(definition, cast.option)
    reason = refusal(definition.poll, option, at)
    if reason is not None:
        raise VoteRefused(_REFUSALS[reason], code=reason)
    return option


def _normalised(definition: Definition, value: str) -> Option:
    option = definition.options.get(text.clean(value, "option", OPTION_ID_BYTES))
    if option is None:
        raise InvalidInput(f"the poll has no option {value!r}", code="unknown-option")
    return option


_REFUSALS = {
    "poll-not-open": "the poll has not opened yet",
    "poll-closed": "the poll is closed",
    "poll-deleted": "the poll is deleted",
    "option-withdrawn": "the option is withdrawn",
}
