"""Performs what the schedules decide: sends attempts, records their outcomes, and wakes when the next one is due.

Each queue has at most one timer; a queue with nothing to do costs nothing.
"""

import asyncio
from collections import deque
from dataclasses import asdict, dataclass, replace

from emulator.cloud_tasks.clock import ManualClock
from emulator.cloud_tasks.convert import stored_task
from emulator.cloud_tasks.faults import Faults
from emulator.cloud_tasks.names import queue_id
from emulator.cloud_tasks.queues import Queue, Queues
from emulator.cloud_tasks.request import Authorize, History, HttpCall, build
from emulator.cloud_tasks.target import LATE, UNREACHABLE, Target, http_code
from tally.clock import SECOND
from tally.logs import event
from tally.tasks.entry import Dispatch, Outcome

LONGEST_TIMER = 3_600 * SECOND
SHOWN = 50  # last dispatches kept for the view
SETTLE_SECONDS = 2.0  # a stepped clock waits this long for an answer before it goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A finished attempt, for the view."""

    at: int
    queue: str
    task: str
    attempt: int
    status: str
    ending: str


class Dispatcher:
    """`app_engine` is the base URL of the app that App Engine tasks go to."""

    def __init__(
        self, queues: Queues, target: Target, faults: Faults, authorize: Authorize, *, app_engine: str
    ) -> None:
        self.last: deque[Done] = deque(maxlen=SHOWN)
        self.sent = 0
        self._queues = queues
        self._target = target
        self._faults = faults
        self._authorize = authorize
        self._app_engine = app_engine
        self._timers: dict[Queue, asyncio.Handle] = {}
        self._soon: set[Queue] = set()
        self._attempts: dict[tuple[Queue, int, int], asyncio.Task[None]] = {}
        self._closed = False
        queues.changed = self.kick

    def kick(self, queue: Queue) -> None:
        """Look at a queue's schedule soon."""
        if queue not in self._soon and not self._closed:
            self._soon.add(queue)
            asyncio.get_running_loop().call_soon(self._pump, queue)

    def start(self) -> None:
        """Look at every queue: after a restart."""
        for queue in self._queues.all():
            self.kick(queue)

    def send(self, queue: Queue, dispatch: Dispatch) -> None:
        """Perform an attempt in the background."""
        self.sent += 1
        key = (queue, dispatch.entry.sequence, dispatch.attempt)
        task = asyncio.get_running_loop().create_task(self._attempt(queue, dispatch))
        self._attempts[key] = task
        task.add_done_callback(lambda _: self._attempts.pop(key, None))

    def forget(self, queue: Queue) -> None:
        """Drop a queue's timer, when it is deleted."""
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()

    async def close(self) -> None:
        self._closed = True
        for queue in list(self._timers):
            self.forget(queue)
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        await self._target.close()

    # A clock that is stepped

    async def advance(self, clock: ManualClock, to: int) -> None:
        """Move the clock to an instant through every one at which something is due, waiting for the answers of each.

        A target that does not answer within SETTLE_SECONDS is left behind, and meets its deadline in the clock's time.
        """
        await self.settle()
        while (wake := self._next_wake()) is not None and wake <= to:
            clock.set(max(wake, clock.now()))
            for queue in self._queues.all():
                self._pump(queue)
            await self.settle()
            if self._next_wake() == wake == clock.now():
                break
        clock.set(to)
        for queue in self._queues.all():
            self._pump(queue)
        await self.settle()

    async def settle(self) -> None:
        """Wait until no queue has anything to look at and no attempt is under way, or none ends for SETTLE_SECONDS."""
        await asyncio.sleep(0)
        while self._soon or self._attempts:
            if self._attempts:
                done, _ = await asyncio.wait(
                    self._attempts.values(), timeout=SETTLE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return
            await asyncio.sleep(0)

    def _next_wake(self) -> int | None:
        now = self._queues.clock.now()
        wakes = [queue.schedule.wake_at(now) for queue in self._queues.all()]
        return min((wake for wake in wakes if wake is not None), default=None)

    # Looking at a queue

    def _pump(self, queue: Queue) -> None:
        self._soon.discard(queue)
        self.forget(queue)
        if self._closed:
            return
        for dispatch in queue.schedule.overdue(self._queues.clock.now()):
            attempt = self._attempts.get((queue, dispatch.entry.sequence, dispatch.attempt))
            if attempt is not None:
                attempt.cancel()
            self._finish(queue, dispatch, LATE)
        for dispatch in self._queues.due(queue):
            self.send(queue, dispatch)
        now = self._queues.clock.now()
        wake = queue.schedule.wake_at(now)
        if wake is not None and not isinstance(self._queues.clock, ManualClock):
            delay = min(max(wake - now, 0), LONGEST_TIMER) / SECOND
            self._timers[queue] = asyncio.get_running_loop().call_later(delay, self.kick, queue)

    # Performing an attempt

    async def _attempt(self, queue: Queue, dispatch: Dispatch) -> None:
        try:
            self._finish(queue, dispatch, await self._perform(queue, dispatch))
        finally:
            self.kick(queue)

    async def _perform(self, queue: Queue, dispatch: Dispatch) -> Outcome:
        """Send the request, with what the fault plan does to it."""
        where, call = queue_id(queue.name), self._call(queue, dispatch)
        late = self._faults.hit("late-dispatch", where)
        if late is not None:
            await asyncio.sleep(late.seconds)
        copies = 2 if self._faults.hit("duplicate-dispatch", where) else 1
        outcome, *_ = await asyncio.gather(*(self._target.send(call) for _ in range(copies)))
        if self._faults.hit("lose-answer", where):
            outcome = UNREACHABLE
        if self._faults.hit("throttle", where):
            outcome = replace(outcome, overload=True)
        return outcome

    def _call(self, queue: Queue, dispatch: Dispatch) -> HttpCall:
        previous = dispatch.previous.status if dispatch.previous is not None else ""
        history = History(
            retries=dispatch.attempt - 1,
            responses=dispatch.entry.responses,
            previous_code=http_code(previous),
            previous_reason=previous,
        )
        return build(queue.message, stored_task(dispatch.entry), dispatch, history, self._authorize, self._app_engine)

    def _finish(self, queue: Queue, dispatch: Dispatch, outcome: Outcome) -> None:
        settlement = self._queues.finish(queue, dispatch, outcome)
        done = Done(
            at=self._queues.clock.now(),
            queue=queue_id(queue.name),
            task=dispatch.entry.id,
            attempt=dispatch.attempt,
            status=outcome.status,
            ending=settlement.ending.value,
        )
        self.last.append(done)
        if not outcome.success:
            event("attempt-failed", **asdict(done))
