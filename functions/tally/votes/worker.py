"""The worker: pulls messages, has them counted, acknowledges them. Life, health and death of the parts around it.

Shutdown: no new Pull, a second for those out, one flush, abandon what is in flight, acknowledge, give the rest back.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from tally import limits
from tally.clock import Clock
from tally.errors import BackendError, UnsafeStore
from tally.logs import event
from tally.ports import Publisher, Puller, Received, Store
from tally.retry import full_jitter
from tally.votes import guard
from tally.votes.admission import Admission
from tally.votes.inbox import Inbox
from tally.votes.known_polls import KnownPolls
from tally.votes.lanes import Lanes
from tally.votes.store_watch import TRY_EVERY, StoreWatch

PULLS = 4
STUCK_AFTER = 30.0
EMPTY_FOR = 20.0
ONLY_LET_GO_FOR = 60.0
PULLS_END, FLUSH_END, ACKS_END, RELEASE_END = 1.0, 6.0, 7.0, 7.5
EXIT_EMPTY, EXIT_ONLY_LET_GO = 0, 3
_BACKOFF_BASE, _BACKOFF_CAP = 0.2, 5.0
_TICK = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`ok`: something moved within STUCK_AFTER; `body` says more, for people and alerts."""

    ok: bool
    body: dict[str, object]


class Worker:
    """One per event loop; `run` once."""

    def __init__(
        self,
        store: Store,
        puller: Puller,
        publisher: Publisher,
        *,
        dead_letter_topic: str,
        clock: Clock,
        random: Random,
        fold_from: int = limits.FOLD_SEGMENTS // 2,
        memory: int = limits.CACHED_RECORD_BYTES,
    ) -> None:
        self._store = store
        self._puller = puller
        self._random = random
        self._time = asyncio.get_running_loop().time
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._inbox = Inbox(puller, publisher, dead_letter_topic)
        self._watch = StoreWatch(store, random)
        self._polls = KnownPolls(store, self._watch.failed)
        self._lanes = Lanes(
            store,
            self._polls,
            self._inbox,
            self._watch,
            clock=clock,
            random=random,
            spawn=self._spawn,
            fold_from=fold_from,
            memory=memory,
        )
        self._admission = Admission(self._polls, self._inbox, self._lanes, random=random, spawn=self._spawn)
        self._trial = asyncio.Lock()
        self._stopping = False
        self._moved_at = self._last_any = self._time()
        self._answered_at = float("-inf")
        self._progress = (0, 0)

    async def run(self, stop: asyncio.Event, *, until_empty: bool = False) -> int:
        """Work until `stop` is set or, with `until_empty`, nothing is left; return the exit code.

        Raises UnsafeStore if the store's version guard does not hold.
        """
        if not await self._guard_holds(stop):
            return EXIT_EMPTY
        try:
            async with self._group:
                inbox = self._spawn(self._inbox.run())
                self._spawn(self._watch.run())
                pulls = [self._spawn(self._pull_forever()) for _ in range(PULLS)]
                event("worker-started")
                code = await self._wait(stop, until_empty)
                event("worker-stopping")
                await self._shut_down(pulls, inbox)
        except BaseExceptionGroup as group:
            unsafe, others = group.split(UnsafeStore)
            if unsafe and not others:
                raise UnsafeStore("the store's version guard does not hold: see the log") from unsafe
            raise
        event("worker-stopped", held=len(self._inbox.held))
        return code

    def health(self) -> Health:
        parked = self._lanes.parked()
        thrashing = self._time() - self._lanes.thrashed_at < STUCK_AFTER
        stuck_for = self._stuck_for()
        full = limits.BALLOTS_PER_PARTITION * 3 // 4
        body: dict[str, object] = {
            "held": len(self._inbox.held),
            "settled": self._inbox.settled_messages,
            "settled_votes": self._lanes.settled_votes,
            "dead_letters": self._inbox.dead_letters,
            "newer_version": self._admission.newer_messages,
            "partitions": len(self._lanes.lanes),
            "parked": [{"poll": lane.poll.id, "partition": lane.partition, "problem": lane.problem} for lane in parked],
            "filling": [
                {"poll": lane.poll.id, "partition": lane.partition, "ballots": lane.counter.ballots}
                for lane in self._lanes.lanes.values()
                if lane.counter.ballots >= full
            ],
            "store_down": self._watch.down,
            "thrashing": thrashing,
            "stuck_seconds": round(stuck_for),
        }
        return Health(ok=stuck_for < STUCK_AFTER and not thrashing, body=body)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def _guard_holds(self, stop: asyncio.Event) -> bool:
        """Probe the store until it answers; False, at once, if the worker is to stop meanwhile."""
        probing = asyncio.create_task(self._probe())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((probing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if probing.done():
                probing.result()
            return probing.done()
        finally:
            probing.cancel()
            stopping.cancel()

    async def _probe(self) -> None:
        attempt = 0
        while True:
            try:
                await guard.probe(self._store, UUID(int=self._random.getrandbits(128)))
                return
            except BackendError as error:
                attempt += 1
                event("guard-probe-failed", level=logging.WARNING, status=error.status, reason=error.message)
                await self._back_off(attempt)

    async def _pull_forever(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                await self._pull_while_down()
                await self._pull(limits.PULL_MESSAGES)
                failures = 0
            except BackendError as error:
                failures += 1
                event("pull-failed", level=logging.WARNING, status=error.status, reason=error.message)
                await self._back_off(failures)

    async def _pull_while_down(self) -> None:
        """While the store is down, pull one trial message after each pause: one for all Pulls."""
        while self._watch.down and not self._stopping:
            async with self._trial:
                await self._watch.until_up(TRY_EVERY)
                if self._watch.down:  # pragma: no branch  # both happen: the tracer misses one inside an `async with`
                    await self._pull(1)

    async def _pull(self, count: int) -> None:
        await self._inbox.reserve()
        try:
            messages = await self._puller.pull(count)
            self._answered(messages)
        finally:
            self._inbox.release_room()

    def _answered(self, messages: Sequence[Received]) -> None:
        self._answered_at = self._time()
        if not messages:
            return
        self._last_any = self._time()
        event("pulled", level=logging.DEBUG, ids=[message.message_id for message in messages])
        self._admission.receive(messages)

    async def _wait(self, stop: asyncio.Event, until_empty: bool) -> int:
        """Keep house once a second until the worker is to end; return the exit code."""
        while not stop.is_set():
            self._lanes.housekeep()
            self._look_for_movement()
            if until_empty and (code := self._ended()) is not None:
                return code
            try:
                async with asyncio.timeout(_TICK):
                    await stop.wait()
            except TimeoutError:
                continue
        return EXIT_EMPTY

    def _look_for_movement(self) -> None:
        progress = (self._inbox.settled_messages, self._lanes.progress)
        if progress != self._progress:
            self._moved_at = self._time()
        elif not self._inbox.busy and self._time() - self._inbox.let_go_at >= EMPTY_FOR:
            # Idle; what was let go is not settled, but would have come again by now.
            self._moved_at = max(self._moved_at, self._answered_at)
        self._progress = progress

    def _stuck_for(self) -> float:
        """Return for how long nothing has moved; while the store is down, refusals and copies are no movement."""
        since = self._watch.failing_since
        return self._time() - (self._moved_at if since is None or not self._watch.down else min(since, self._moved_at))

    def _ended(self) -> int | None:
        now = self._time()
        answered = now - self._answered_at < EMPTY_FOR
        if self._inbox.busy or not answered:
            return None
        if now - self._last_any >= EMPTY_FOR:
            return EXIT_EMPTY
        return EXIT_ONLY_LET_GO if now - self._admission.new_at >= ONLY_LET_GO_FOR else None

    async def _shut_down(self, pulls: list[asyncio.Task[None]], inbox: asyncio.Task[None]) -> None:
        begun = self._time()
        self._stopping = True
        await asyncio.wait(pulls, timeout=PULLS_END)
        for pull in pulls:
            pull.cancel()
        self._admission.admit()
        self._lanes.flush()
        if self._lanes.running:
            await asyncio.wait(list(self._lanes.running.values()), timeout=begun + FLUSH_END - self._time())
        abandoned = [inbox, *self._lanes.running.values()]
        for task in abandoned:
            task.cancel()
        # What was in flight is the inbox's again once they have ended.
        await asyncio.wait(abandoned, timeout=max(0.0, begun + ACKS_END - self._time()))
        for finish, end in ((self._inbox.flush, ACKS_END), (self._inbox.release_all, RELEASE_END)):
            try:
                async with asyncio.timeout(max(0.0, begun + end - self._time())):
                    await finish()
            except TimeoutError:
                event("shutdown-cut-short", level=logging.WARNING)
        for task in list(self._tasks):
            task.cancel()

    async def _back_off(self, attempt: int) -> None:
        await asyncio.sleep(full_jitter(attempt, base=_BACKOFF_BASE, cap=_BACKOFF_CAP, random=self._random))
