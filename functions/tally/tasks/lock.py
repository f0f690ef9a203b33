"""A distributed lock: one holder at a time, until it releases or its time is over. It is a task that never ends.

    lock = Lock(PullQueue(store, "locks", clock=clock), "nightly-report")
    hold = await lock.acquire(seconds=60, wait=10)
    report.write(data, fence=hold.attempt)      # refused there if a higher fence has been seen
    await lock.release(hold)

A holder that is suspended past its time (a zombie) still believes that it holds the lock, and no lock can tell it in
time. So `hold.attempt`, the fencing token, grows with each acquisition: what the lock protects keeps the highest that
it has seen, and refuses lower ones. Without that check the lock saves work, but is no guarantee.
"""

from tally.errors import Busy, LeaseExpired
from tally.retry import UNLIMITED, RetryPolicy
from tally.tasks.lease import Lease
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task, check_name


class Lock:
    """One lock by its name, in a queue that holds nothing but locks (never purge it: the fences would begin again)."""

    def __init__(self, queue: PullQueue, name: str) -> None:
        self._queue = queue
        self._task = Task(name=check_name(name), tag=name, retry=RetryPolicy(max_attempts=UNLIMITED))
        self._is_there = False

    async def acquire(self, seconds: float, *, wait: float = 0) -> Lease:
        """Take the lock, waiting for it up to `wait` seconds; raises Busy if another holds it then."""
        if not self._is_there:
            self._is_there = (await self._queue.add(self._task)).status in ("added", "exists")
        for hold in await self._queue.lease(1, seconds=seconds, tag=self._task.tag, wait=wait):
            return hold
        raise Busy(f"lock {self._task.name} is held", retry_after=seconds)

    async def extend(self, hold: Lease, seconds: float) -> Lease:
        """Hold the lock for `seconds` from now; raises LeaseExpired if it is no longer this hold's."""
        return await self._queue.extend(hold, seconds)

    async def release(self, hold: Lease) -> None:
        """Give the lock back; one that is over already is no error."""
        try:
            await self._queue.release(hold)
        except LeaseExpired:
            return
