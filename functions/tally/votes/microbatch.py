"""Micro-batches: concurrent requests share a publish. A vote whose future is done is durable.

A batch closes after a few milliseconds, or when full, and becomes one message. Each request waits on a future of its
own, and the publishing belongs to none of them: a request that is cancelled takes no other with it.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tally.clock import CLOCK_BOUND, SECOND, Clock
from tally.errors import BackendError, Busy
from tally.limits import MESSAGE_BYTES, MESSAGE_VOTES, OPTION_ID_BYTES, WAITING_BYTES, WAITING_VOTES
from tally.logs import event
from tally.ports import Outgoing, Publisher
from tally.votes import batch
from tally.votes.batch import Vote

LINGER_SECONDS = 0.005
PUBLISH_SECONDS = 6.0
CONFIRM_WITHIN = 60 * SECOND
_ATTRIBUTES = {"v": str(batch.VERSION)}
_VOTE_BYTES = 52  # at most: 24 of base64, 5 of choice, 20 of time, commas
_GROUP_BYTES = 160  # a group's own text and its poll's id
_VOTE_BYTES_AT_MOST = _VOTE_BYTES + _GROUP_BYTES + 2 * OPTION_ID_BYTES


class _Waiter(NamedTuple):
    done: "asyncio.Future[None]"
    oldest: int


class _Batch:
    """The votes of one message to be. `size` is an upper bound of its bytes."""

    __slots__ = ("options", "size", "timer", "votes", "waiters")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.votes: list[Vote] = []
        self.waiters: list[_Waiter] = []
        self.options: set[tuple[str, str]] = set()
        self.size = 0

    def growth(self, votes: Sequence[Vote]) -> int:
        """Return how many bytes these votes add at most; a poll counts anew with each of its options."""
        size = _VOTE_BYTES * len(votes)
        for vote in votes:
            option = vote[:2]
            if option not in self.options:
                self.options.add(option)
                size += _GROUP_BYTES + 2 * len(option[1].encode())
        return size


class MicroBatcher:
    """For one event loop. `linger`: seconds that a batch stays open."""

    def __init__(self, publisher: Publisher, clock: Clock, random: Random, linger: float = LINGER_SECONDS) -> None:
        self._publisher = publisher
        self._clock = clock
        self._random = random
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, _Batch] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self._waiting_votes = 0
        self._waiting_bytes = 0
        self.durable_votes = 0
        self._closed = False
        self._failing_since: dict[str, float] = {}

    @property
    def failing_seconds(self) -> float:
        """How long each publish to some topic has failed; 0 while they succeed."""
        return self._loop.time() - min(self._failing_since.values()) if self._failing_since else 0.0

    def add(self, topic: str, votes: Sequence[Vote]) -> "asyncio.Future[None]":
        """Put votes of one request, oldest first, into the topic's batch; the future is done when they are durable.

        At most VOTES_PER_REQUEST. Raises Busy when too many wait; the future fails with Busy when the publish failed,
        was slow, or was confirmed too late: the votes may be in.
        """
        most = self._waiting_bytes + _VOTE_BYTES_AT_MOST * len(votes)
        if self._closed or self._waiting_votes + len(votes) > WAITING_VOTES or most > WAITING_BYTES:
            raise self._busy("too many votes wait for Pub/Sub", "intake-full")
        current = self._open.get(topic) or self._begin(topic)
        growth = current.growth(votes)
        if len(current.votes) + len(votes) > MESSAGE_VOTES or current.size + growth > MESSAGE_BYTES:
            self._flush(topic)
            current = self._begin(topic)
            growth = current.growth(votes)
        current.votes += votes
        current.size += growth
        self._waiting_votes += len(votes)
        self._waiting_bytes += growth
        done = self._loop.create_future()
        current.waiters.append(_Waiter(done, votes[0].accepted_at))
        return done

    def flush(self) -> None:
        """Close every open batch now."""
        for topic in list(self._open):
            self._flush(topic)

    async def close(self) -> None:
        """Take no more votes, and return when all that were taken are published or have failed."""
        self._closed = True
        self.flush()
        while self._publishing:
            await asyncio.wait(self._publishing)

    def _begin(self, topic: str) -> _Batch:
        current = self._open[topic] = _Batch(self._loop.call_later(self._linger, self._flush, topic))
        return current

    def _flush(self, topic: str) -> None:
        full = self._open.pop(topic)
        full.timer.cancel()
        task = self._loop.create_task(self._publish(topic, full))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _publish(self, topic: str, full: _Batch) -> None:
        failure: str | None = "Pub/Sub did not confirm: the votes may be in, and it is safe to send them again"
        try:
            async with asyncio.timeout(PUBLISH_SECONDS):
                await self._publisher.publish(topic, [Outgoing(batch.encode(full.votes), _ATTRIBUTES)])
            failure = self._set_back(full.votes[-1])
            self._failing_since.pop(topic, None)
            self.durable_votes += len(full.votes)
        except (BackendError, TimeoutError) as error:
            event("publish-failed", topic=topic, votes=len(full.votes), reason=repr(error))
            self._failing_since.setdefault(topic, self._loop.time())
        finally:
            self._waiting_votes -= len(full.votes)
            self._waiting_bytes -= full.size
            self._settle(full.waiters, failure)

    def _settle(self, waiters: Sequence[_Waiter], failure: str | None) -> None:
        confirmed_late = self._clock.now() - CONFIRM_WITHIN
        for done, oldest in waiters:
            if done.done():
                continue
            late = "Pub/Sub confirmed too late: send the votes again" if oldest < confirmed_late else None
            if problem := failure or late:
                done.set_exception(self._busy(problem))
                done.exception()  # a list of which another topic took no more waits for none
            else:
                done.set_result(None)

    def _set_back(self, vote: Vote) -> str | None:
        """Say so if the clock fell behind the stamps by more than from one end of its bound to the other.

        Where Pub/Sub has the same clock, the votes would be from after their publication: the worker refuses them.
        """
        ahead = vote.accepted_at - self._clock.now()
        return "this machine's clock was set back: send the votes again" if ahead > 2 * CLOCK_BOUND else None

    def _busy(self, message: str, code: str = "publish-unconfirmed") -> Busy:
        return Busy(message, retry_after=self._random.randint(1, 5), code=code)
