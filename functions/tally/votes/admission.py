"""What happens to pulled messages: decoded, judged by their polls' definitions, handed to the lanes.

Those of several Pulls are gathered first. What can be accepted by a definition held goes on at once; the rest waits for
a read, by a task of its own.
"""

import asyncio
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from tally import limits
from tally.errors import TallyError
from tally.logs import event
from tally.ports import Received
from tally.retry import full_jitter
from tally.votes import decoder, verdict
from tally.votes.batch import Columns
from tally.votes.dead_letter import published_at
from tally.votes.inbox import Inbox
from tally.votes.known_polls import Known, KnownPolls
from tally.votes.lane import LET_GO_AFTER
from tally.votes.lanes import Lanes, Spawn
from tally.votes.records import Words

_BACKOFF_BASE, _BACKOFF_CAP = 0.2, 5.0
# Messages go on once so many have come, or so much later: numpy takes about as long for a few as for many.
_GATHER_MESSAGES, _GATHER_SECONDS = int(limits.PULL_MESSAGES), 0.005


class Admission:
    def __init__(self, polls: KnownPolls, inbox: Inbox, lanes: Lanes, *, random: Random, spawn: Spawn) -> None:
        self._time = asyncio.get_running_loop().time
        self.newer_messages = 0
        self.new_at = self._time()
        self._polls = polls
        self._inbox = inbox
        self._lanes = lanes
        self._random = random
        self._spawn = spawn
        self._gathered: list[Received] = []
        self._let_go_ids: dict[str, None] = {}
        self._unread: dict[int, NDArray[np.intp]] = {}

    def receive(self, messages: Sequence[Received]) -> None:
        """Take the messages of a Pull just answered, to be admitted within milliseconds."""
        self._inbox.receive(messages)
        if not self._gathered:
            self._spawn(self._admit_soon())
        self._gathered += messages
        if len(self._gathered) >= _GATHER_MESSAGES:
            self.admit()

    async def _admit_soon(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        self.admit()

    def admit(self) -> None:
        """Hold the messages received, let go of those of a newer version, and start on the others."""
        messages, self._gathered = self._gathered, []
        pulled_at = self._time()
        first = self._inbox.next_number
        decoded = decoder.decode(messages, first)
        instants = [published_at(message) for message in messages]
        self._inbox.take(messages, instants, decoded)
        if decoded.newer:
            self.newer_messages += len(decoded.newer)
            event("message-of-newer-version", messages=len(decoded.newer))
            self._let_go_ids.update(dict.fromkeys(messages[number - first].message_id for number in decoded.newer))
            while len(self._let_go_ids) > limits.HELD_MESSAGES:
                del self._let_go_ids[next(iter(self._let_go_ids))]
        if any(message.message_id not in self._let_go_ids for message in messages):
            self.new_at = pulled_at
        published = np.array(instants, np.uint64)
        for columns in decoded.columns:
            self._begin(columns, published[columns.owner - first], pulled_at)

    def _begin(self, columns: Columns, published: Words, pulled_at: float) -> None:
        known = self._polls.held(columns.poll)
        if known is None or not self._judge(known, columns, published, pulled_at):
            self._spawn(self._judge_anew(columns, published, pulled_at))

    def _judge(self, known: Known, columns: Columns, published: Words, pulled_at: float) -> bool:
        """Accept the votes, or those that may be accepted; False: some would be refused by a definition too old."""
        verdicts, records = verdict.judge(known.poll, columns, published)
        if not verdicts.any():
            assert known.poll is not None
            self._lanes.add(known.poll, records, columns.owner, pulled_at)
            return True
        if known.sent < pulled_at:
            return False
        accepted = verdicts == 0
        if accepted.any():
            assert known.poll is not None
            self._lanes.add(known.poll, records[accepted], columns.owner[accepted], pulled_at)
        for reason in np.unique(verdicts[~accepted]).tolist():
            self._lanes.dead_letter(columns.rows(verdicts == reason), verdict.REASONS[reason])
        return True

    async def _judge_anew(self, columns: Columns, published: Words, pulled_at: float) -> None:
        """Read the definition, then judge. While it cannot be read the votes wait, if there is room, for a minute."""
        try:
            known = await self._read(columns, pulled_at)
        finally:
            self._unread.pop(id(columns), None)
        if known is None:
            self._lanes.let_go(columns.owner)
        else:
            self._judge(known, columns, published, pulled_at)

    async def _read(self, columns: Columns, pulled_at: float) -> Known | None:
        """Return the definition read anew; None: give the votes up."""
        attempt = 0
        while self._time() - pulled_at < LET_GO_AFTER:
            try:
                return await self._polls.read(columns.poll)
            except TallyError as error:
                attempt += 1
                event("definition-read-failed", poll=columns.poll, reason=error.message)
            self._unread[id(columns)] = columns.owner
            if self._inbox.over_share(self._unread.values()):
                break
            await asyncio.sleep(full_jitter(attempt, base=_BACKOFF_BASE, cap=_BACKOFF_CAP, random=self._random))
        return None
