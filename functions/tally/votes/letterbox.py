"""The dead letters that wait on their subscription: read, replay or drop them.

A subscription shows nothing without lending it: a scan holds what it was lent, so that nothing comes twice, and at its
end gives back what it did not settle. A letter is acknowledged only when its replay is published; a crash in between
publishes it again, which a ballot's identity makes harmless. The original `published_at` goes with it: to the worker
the votes are as old as they were.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from tally import limits
from tally.errors import BackendError, NotFound, TooLarge
from tally.logs import event
from tally.ports import Outgoing, Publisher, Puller
from tally.votes import ballot, dead_letter
from tally.votes.batch import VERSION
from tally.votes.dead_letter import Letter
from tally.votes.known_polls import KnownPolls
from tally.votes.stream import Streams

LEASE_SECONDS = 60
RENEW_SECONDS = 20.0
QUIET_SECONDS = 5.0
_EMPTY_PAUSE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters are meant; None takes any. A letter with votes of several polls is taken or left as a whole."""

    reason: str | None = None
    poll: str | None = None
    id: str | None = None

    def takes(self, letter: Letter) -> bool:
        return (
            (self.reason is None or letter.reason == self.reason)
            and (self.poll is None or self.poll in letter.polls)
            and (self.id is None or letter.id == self.id)
        )


@dataclass(slots=True, kw_only=True)
class Run:
    """What a run over the letters came to, so far.

    `others` do not match, `unsound` match and cannot be replayed, `again` were replayed and refused meanwhile: all
    these stay. `more`: it ended at LETTERS_PER_RUN.
    """

    letters: int = 0
    votes: int = 0
    others: int = 0
    unsound: int = 0
    again: int = 0
    more: bool = False
    reasons: Counter[str] = field(default_factory=Counter)


Settle: TypeAlias = Callable[[Sequence[Letter]], Awaitable[Sequence[str]]]
Progress: TypeAlias = Callable[[Run], None]


class Letterbox:
    """A replay goes to the stream that takes such votes now, whichever they came by."""

    def __init__(self, puller: Puller, publisher: Publisher, streams: Streams, polls: KnownPolls) -> None:
        self._puller = puller
        self._publisher = publisher
        self._streams = streams
        self._polls = polls

    async def read(self, selection: Selection, limit: int) -> list[Letter]:
        """Return up to `limit` letters; all go back to the subscription."""
        letters: list[Letter] = []
        async with self._scan() as scan:
            async for batch in scan.batches():
                letters += filter(selection.takes, batch)
                if len(letters) >= limit:
                    break
        return letters[:limit]

    async def show(self, letter_id: str) -> Letter:
        """Return one letter; raises NotFound if it is not there, or lent to somebody else just now."""
        letters = await self.read(Selection(id=letter_id), 1)
        if not letters:
            raise NotFound(f"no dead letter {letter_id!r}; one that another command reads is back within a minute")
        return letters[0]

    async def replay(self, selection: Selection, *, dry_run: bool, progress: Progress) -> Run:
        """Publish the letters' votes again, then acknowledge them. Raises Unavailable; then a part may be done."""
        settle = None if dry_run else self._publish
        return await self._run(selection, settle, progress, replayed=True)

    async def drop(self, selection: Selection, *, dry_run: bool, progress: Progress) -> Run:
        """Acknowledge the letters: their votes are gone. Raises Unavailable; then a part may be done."""
        settle = None if dry_run else self._forget
        return await self._run(selection, settle, progress, replayed=False)

    async def _run(self, selection: Selection, settle: Settle | None, progress: Progress, *, replayed: bool) -> Run:
        run = Run()
        published: set[str] = set()
        async with self._scan() as scan:
            async for batch in scan.batches():
                taken = []
                for letter in batch:
                    if letter.message_id in published:
                        run.again += 1  # replaying it once more would never end
                    elif not selection.takes(letter):
                        run.others += 1
                    elif replayed and not letter.replayable:
                        run.unsound += 1
                    else:
                        taken.append(letter)
                for part in _parts(taken):
                    if settle is not None:
                        published.update(await settle(part))
                        await scan.acknowledge(part)
                    run.letters += len(part)
                    run.votes += sum(letter.votes for letter in part)
                    run.reasons.update(letter.reason for letter in part)
                    progress(run)
                if run.letters >= limits.LETTERS_PER_RUN:
                    run.more = True
                    break
        return run

    async def _publish(self, letters: Sequence[Letter]) -> Sequence[str]:
        messages: dict[str, list[Outgoing]] = {}
        for letter in letters:
            attributes = {"v": str(VERSION), dead_letter.PUBLISHED_AT: str(letter.published_at)}
            messages.setdefault(await self._topic(letter), []).append(Outgoing(letter.data, attributes))
        ids = [one for topic, group in messages.items() for one in await self._publisher.publish(topic, group)]
        event("dead-letters-replayed", letters=len(letters), votes=sum(letter.votes for letter in letters))
        return ids

    async def _topic(self, letter: Letter) -> str:
        """Return the topic of the first vote: they all came by one message, so the others' is mostly the same."""
        first = next(dead_letter.votes(letter), None)
        if first is None or len(self._streams.topics) == 1:
            return self._streams.topics[0]
        poll = (self._polls.held(first.poll) or await self._polls.read(first.poll)).poll
        partitions = poll.partitions if poll else 1
        return self._streams.topic(first.poll, ballot.partition(bytes.fromhex(first.ballot), partitions))

    async def _forget(self, letters: Sequence[Letter]) -> Sequence[str]:
        event("dead-letters-dropped", letters=len(letters), votes=sum(letter.votes for letter in letters))
        return ()

    @asynccontextmanager
    async def _scan(self) -> AsyncIterator["_Scan"]:
        scan = _Scan(self._puller)
        renewing = asyncio.create_task(scan.renew())
        try:
            yield scan
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            await scan.give_back()


class _Scan:
    """The letters that one run was lent."""

    def __init__(self, puller: Puller) -> None:
        self._puller = puller
        self._held: dict[str, None] = {}
        self._seen: set[str] = set()

    async def batches(self) -> AsyncIterator[list[Letter]]:
        """Yield letters, each once, until none has come for QUIET_SECONDS. Raises Unavailable, TooLarge."""
        time = asyncio.get_running_loop().time
        last = time()
        while time() - last < QUIET_SECONDS:
            messages = await self._puller.pull(limits.PULL_MESSAGES)
            await self._lend([message.ack_id for message in messages])
            letters = [dead_letter.parse(message) for message in messages if message.message_id not in self._seen]
            self._seen.update(letter.id for letter in letters)
            if letters:
                yield letters
                last = time()
            else:
                await asyncio.sleep(_EMPTY_PAUSE)
            if len(self._held) > limits.HELD_LETTERS:
                raise TooLarge(
                    f"over {limits.HELD_LETTERS} letters that are not meant lie before the others: "
                    "settle some of those first, by a wider filter"
                )

    async def acknowledge(self, letters: Sequence[Letter]) -> None:
        await self._puller.acknowledge([letter.ack_id for letter in letters])
        for letter in letters:
            del self._held[letter.ack_id]
            self._seen.remove(letter.id)

    async def renew(self) -> None:
        """Keep what is held from coming again, until cancelled; a failure costs no more than a letter seen twice."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await self._extend(list(self._held), LEASE_SECONDS)

    async def give_back(self) -> None:
        await self._extend(list(self._held), 0)

    async def _lend(self, ack_ids: Sequence[str]) -> None:
        self._held.update(dict.fromkeys(ack_ids))
        await self._extend(ack_ids, LEASE_SECONDS)

    async def _extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        for start in range(0, len(ack_ids), limits.ACK_IDS):
            try:
                await self._puller.extend(ack_ids[start : start + limits.ACK_IDS], seconds)
            except BackendError as error:
                event("extend-failed", level=logging.WARNING, status=error.status, reason=error.message)


def _parts(letters: Sequence[Letter]) -> Iterator[list[Letter]]:
    """Split letters into lists that one publish may hold."""
    part: list[Letter] = []
    size = 0
    for letter in letters:
        if part and (size + len(letter.data) > limits.PUBLISH_BYTES or len(part) >= limits.PUBLISH_MESSAGES):
            yield part
            part, size = [], 0
        part.append(letter)
        size += len(letter.data)
    if part:
        yield part
