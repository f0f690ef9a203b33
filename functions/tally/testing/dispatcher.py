"""The Dispatcher port in memory: names with tombstones, tasks for a test to look at and to send."""

from dataclasses import dataclass, field, replace

from tally.clock import SECOND, Clock
from tally.errors import Refused, Rejected, Unavailable
from tally.ports import DispatchStats, HttpTask

TOMBSTONE = 24 * 3_600 * SECOND
ETA = 30 * 86_400 * SECOND
TASK_BYTES = 1_000_000


@dataclass
class FakeDispatcher:
    """`lose_replies` creates are applied and then fail, `refuse` fail without being applied."""

    clock: Clock
    tasks: dict[tuple[str, str], HttpTask] = field(default_factory=dict)
    gone: dict[tuple[str, str], int] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    lose_replies: int = 0
    refuse: int = 0

    async def create(self, queue: str, task: HttpTask) -> None:
        if self.refuse:
            self.refuse -= 1
            raise Unavailable("planned: refused", status="UNAVAILABLE")
        key = (queue, task.id)
        now = self.clock.now()
        if key in self.tasks or self.gone.get(key, -TOMBSTONE) + TOMBSTONE > now:
            raise Refused(f"task {task.id} exists", status="ALREADY_EXISTS")
        if task.at is not None and task.at > now + ETA:
            raise Rejected("schedule time over 30 days ahead", status="INVALID_ARGUMENT")
        if len(task.body) > TASK_BYTES:
            raise Rejected("task too large", status="INVALID_ARGUMENT")
        self.tasks[key] = task
        if self.lose_replies:
            self.lose_replies -= 1
            raise Unavailable("planned: reply lost", status="DEADLINE_EXCEEDED")

    async def delete(self, queue: str, task_id: str) -> bool:
        return self.take(queue, task_id) is not None

    async def run(self, queue: str, task_id: str) -> bool:
        task = self.tasks.get((queue, task_id))
        if task is not None:
            self.tasks[(queue, task_id)] = replace(task, at=self.clock.now())
        return task is not None

    async def purge(self, queue: str) -> None:
        for name, task_id in list(self.tasks):
            if name == queue:
                self.take(queue, task_id)

    async def pause(self, queue: str) -> None:
        self.paused.add(queue)

    async def resume(self, queue: str) -> None:
        self.paused.discard(queue)

    async def stats(self, queue: str) -> DispatchStats:
        etas = [task.at or 0 for (name, _), task in self.tasks.items() if name == queue]
        return DispatchStats(tasks=len(etas), oldest_eta=min(etas, default=None), paused=queue in self.paused)

    async def close(self) -> None:
        """Do nothing."""

    def take(self, queue: str, task_id: str) -> HttpTask | None:
        """Remove a task, as after its success; its name stays taken."""
        task = self.tasks.pop((queue, task_id), None)
        if task is not None:
            self.gone[(queue, task_id)] = self.clock.now()
        return task

    def next(self) -> tuple[str, HttpTask] | None:
        """Return the task that is due first."""
        if not self.tasks:
            return None
        queue, task_id = min(self.tasks, key=lambda key: self.tasks[key].at or 0)
        return queue, self.tasks[(queue, task_id)]
