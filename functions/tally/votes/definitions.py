"""The function's cache of definitions: what a vote is checked by, never older than a stated age.

A definition serves only votes stamped less than CACHE_LIFETIME after its read was sent, so that a change made that long
ahead reaches every function in time. Ids that no poll has are kept too, and are the only reads that are rationed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tally import ports
from tally.clock import CLOCK_BOUND, SECOND, Clock
from tally.errors import BackendError, Busy, TallyError
from tally.limits import CACHED_POLLS, UNKNOWN_READS_PER_SECOND
from tally.logs import event
from tally.votes import keys
from tally.votes.ballot import Hasher
from tally.votes.edit import ID
from tally.votes.keyring import KeyRing
from tally.votes.poll import CACHE_LIFETIME, Option, Poll, not_found
from tally.votes.polls import from_entity

READ_SECONDS = 3.0  # shorter than the lifetime: whoever joins a read in flight can use what it brings
_AHEAD = CACHE_LIFETIME // 2  # age from which a definition is read again behind the votes that it still serves
_HOLD_OFF_SECONDS = 0.25  # after a failed read


class Definition(NamedTuple):
    """A poll as read from the store, and what each vote needs of it. `sent_at`: µs; `sent`: the loop's seconds."""

    sent_at: int
    sent: float
    poll: Poll
    options: dict[str, Option]
    hasher: Hasher

    def serves(self, at: int, loop_time: float) -> bool:
        """Say whether a vote stamped `at` may be checked by it: both clocks must agree that it is young."""
        return at - self.sent_at < CACHE_LIFETIME and loop_time - self.sent < CACHE_LIFETIME / SECOND


class _Absent(NamedTuple):
    sent: float


class _Ration:
    """Lets through so many in any one second of the event loop's clock."""

    def __init__(self, per_second: int, time: Callable[[], float]) -> None:
        self._taken: deque[float] = deque(maxlen=per_second)
        self._time = time

    def take(self) -> bool:
        now = self._time()
        if len(self._taken) == self._taken.maxlen and now - self._taken[0] < 1:
            return False
        self._taken.append(now)
        return True


class Definitions:
    """For one event loop. `get` is for every vote; all else happens behind it."""

    def __init__(self, store: ports.Store, clock: Clock, random: Random, key_ring: KeyRing) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._key_ring = key_ring
        self._time = asyncio.get_running_loop().time
        self._ration = _Ration(UNKNOWN_READS_PER_SECOND, self._time)
        self._known: dict[str, Definition] = {}
        self._absent: dict[str, _Absent] = {}
        self._reads: dict[str, asyncio.Task[Definition | None]] = {}
        self._failed: dict[str, float] = {}

    def held(self, poll_id: str, at: int) -> Definition | None:
        """Return the definition if the cache has one that serves `at`; read it anew behind this if it ages."""
        definition = self._known.get(poll_id)
        if definition is None or not definition.serves(at, self._time()):
            return None
        if at - definition.sent_at > _AHEAD and poll_id not in self._reads and not self._held_off(poll_id):
            self._start(poll_id)
        return definition

    async def get(self, poll_id: str, at: int) -> Definition:
        """Return the definition that serves a vote stamped `at`; raise NotFound, or Busy if it cannot be read."""
        definition = self.held(poll_id, at)
        if definition is not None:
            return definition
        if not ID.fullmatch(poll_id):
            raise not_found(poll_id)
        absent = self._absent.get(poll_id)
        if absent is None or self._time() - absent.sent >= CACHE_LIFETIME / SECOND:
            definition = await asyncio.shield(self._reads.get(poll_id) or self._admit(poll_id))
        if definition is None:
            raise not_found(poll_id)
        if not definition.serves(at, self._time()):
            raise self._busy("the poll's definition could not be read in time")
        return definition

    async def close(self) -> None:
        """Wait until no read is out."""
        await asyncio.gather(*self._reads.values(), return_exceptions=True)

    def _admit(self, poll_id: str) -> asyncio.Task[Definition | None]:
        if self._held_off(poll_id):
            raise self._busy("the poll's definition cannot be read now")
        if poll_id not in self._known and not self._ration.take():
            raise self._busy("too many unknown poll ids are asked for")
        return self._start(poll_id)

    def _held_off(self, poll_id: str) -> bool:
        return self._time() < self._failed.get(poll_id, 0.0)

    def _start(self, poll_id: str) -> asyncio.Task[Definition | None]:
        task = self._reads[poll_id] = asyncio.create_task(self._read(poll_id))
        task.add_done_callback(lambda done: self._finish(poll_id, done))
        return task

    def _finish(self, poll_id: str, task: asyncio.Task[Definition | None]) -> None:
        del self._reads[poll_id]
        if task.cancelled() or task.exception() is None:
            return
        if len(self._failed) >= CACHED_POLLS:
            self._failed.clear()
        self._failed[poll_id] = self._time() + _HOLD_OFF_SECONDS

    async def _read(self, poll_id: str) -> Definition | None:
        key = keys.poll(poll_id)
        sent_at, sent = self._clock.now(), self._time()
        try:
            async with asyncio.timeout(READ_SECONDS):
                found, read_time = await ports.read(self._store, [key])
        except (BackendError, TimeoutError) as error:
            event("definition-read-failed", poll=poll_id, reason=repr(error))
            raise self._busy("the poll's definition cannot be read now") from error
        self._check_clock(sent_at, read_time)
        self._failed.pop(poll_id, None)
        self._known.pop(poll_id, None)
        self._absent.pop(poll_id, None)
        if key not in found:
            self._absent[poll_id] = _Absent(sent)
            self._evict()
            return None
        try:
            poll = from_entity(found[key])
            hasher = Hasher(self._key_ring.get(poll.key_version), poll.id)
        except TallyError as error:
            event("definition-unusable", poll=poll_id, reason=error.message)
            raise
        options = {option.id: option for option in poll.options}
        definition = self._known[poll_id] = Definition(sent_at, sent, poll, options, hasher)
        self._evict()
        return definition

    def _check_clock(self, sent_at: int, read_time: int | None) -> None:
        if read_time is None:
            return
        ahead, behind = sent_at - read_time, read_time - self._clock.now()
        if max(ahead, behind) > CLOCK_BOUND:
            event("clock-is-off", ahead=ahead, behind=behind)
            raise self._busy("this machine's clock and the store's are too far apart", code="clock")

    def _evict(self) -> None:
        """Drop what was read longest ago, absent ids first: a poll in use is read every few seconds."""
        while len(self._known) + len(self._absent) > CACHED_POLLS:
            crowd: dict[str, Definition] | dict[str, _Absent] = self._absent or self._known
            del crowd[next(iter(crowd))]

    def _busy(self, message: str, code: str = "definition-unavailable") -> Busy:
        return Busy(message, retry_after=self._random.randint(1, 5), code=code)
