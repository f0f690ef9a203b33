"""All queues with their schedules, and every change to them, recorded in the journal before it is answered."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from grpc import StatusCode

from emulator.cloud_tasks import checks, convert, limits
from emulator.cloud_tasks.errors import ApiError, invalid
from emulator.cloud_tasks.journal import Journal, NoJournal, SqliteJournal, StoredQueue
from emulator.cloud_tasks.messages import DISABLED, PAUSED, RUNNING
from emulator.cloud_tasks.messages import Queue as QueueMessage
from emulator.cloud_tasks.names import check_queue, location_of
from tally.clock import Clock
from tally.errors import Conflict, NotFound
from tally.tasks.entry import HOUR, Dispatch, Ending, Entry, Outcome, Settlement
from tally.tasks.rate import Ramp
from tally.tasks.schedule import Schedule

OUTPUT_ONLY = ("state", "purge_time")
NAME_USED = (
    "The task cannot be created because a task with this name existed too recently. For more information about task "
    "de-duplication see https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues.tasks/create"
)


@dataclass(slots=True, eq=False)
class Queue:
    """`message` is the Queue as the API shows it; `from_yaml` queues keep task names taken for longer."""

    message: Any
    schedule: Schedule
    from_yaml: bool

    @property
    def name(self) -> str:
        return str(self.message.name)

    @property
    def name_taken(self) -> int:
        return limits.NAME_TAKEN_YAML if self.from_yaml else limits.NAME_TAKEN

    def stored(self) -> StoredQueue:
        return StoredQueue(self.name, self.message.SerializeToString(), self.from_yaml)


class Queues:
    """`changed` is called with a queue whose schedule may have work now."""

    def __init__(
        self, clock: Clock, *, random: Random, journal: Journal | None = None, ramp: Ramp | None = None
    ) -> None:
        self.clock = clock
        self.changed: Callable[[Queue], None] = lambda _: None
        self._random = random
        self._journal = journal or NoJournal()
        self._ramp = ramp
        self._queues: dict[str, Queue] = {}
        self._gone: dict[str, int] = {}

    def load(self, journal: SqliteJournal) -> None:
        """Take in what an earlier run left."""
        now = self.clock.now()
        self._gone = journal.gone_queues(now)
        for row in journal.queues():
            queue = self._hold(QueueMessage.FromString(row.message), row.from_yaml)
            for name, until in journal.names(row.name, now):
                queue.schedule.restore_name(name, until)
            for entry in journal.tasks(row.name):
                if entry.created + limits.RETENTION <= now:
                    journal.drop_task(row.name, entry, now=now, taken_until=None)
                else:
                    queue.schedule.restore(entry)

    def all(self) -> list[Queue]:
        """Return the queues by name."""
        return [self._queues[name] for name in sorted(self._queues)]

    def get(self, name: str) -> Queue:
        try:
            return self._queues[name]
        except KeyError:
            raise ApiError(
                StatusCode.NOT_FOUND,
                f"Queue {name} does not exist. If you just created the queue, wait at least a minute for the queue to "
                "initialize.",
            ) from None

    def create(self, message: Any, *, from_yaml: bool = False, explicit: frozenset[str] = frozenset()) -> Queue:
        """Add a queue. Raises ApiError: it exists, its name was used lately, a setting is out of bounds."""
        name, now = message.name, self.clock.now()
        if name in self._queues:
            raise ApiError(StatusCode.ALREADY_EXISTS, f"Queue already exists: {name}")
        if self._gone.get(name, 0) > now:
            raise ApiError(
                StatusCode.FAILED_PRECONDITION,
                "The queue cannot be created because a queue with this name existed too recently. "
                f"The name {name} is free again up to {limits.QUEUE_NAME_TAKEN // HOUR} h after its deletion.",
            )
        location = location_of(name)
        if sum(location_of(other) == location for other in self._queues) >= limits.QUEUES:
            raise ApiError(StatusCode.RESOURCE_EXHAUSTED, f"{location} has {limits.QUEUES} queues, the limit")
        own = QueueMessage()
        own.CopyFrom(message)
        for field in OUTPUT_ONLY:
            own.ClearField(field)
        if not from_yaml:
            own.rate_limits.max_burst_size = 0
        own.state = RUNNING
        convert.fill_defaults(own, explicit)
        checks.check_queue_settings(own)
        queue = self._hold(own, from_yaml)
        self._gone.pop(name, None)
        self._journal.put_queue(queue.stored())
        return queue

    def update(self, message: Any, paths: list[str]) -> Queue:
        """Change the masked fields (no mask: all), or create the queue. Raises ApiError."""
        if message.name not in self._queues:
            return self.create(message, explicit=frozenset(paths))
        queue = self._queues[message.name]
        merged = QueueMessage()
        merged.CopyFrom(queue.message)
        _merge(message, merged, paths)
        merged.name = queue.name
        merged.state = queue.message.state
        if queue.message.HasField("purge_time"):
            merged.purge_time.CopyFrom(queue.message.purge_time)
        merged.rate_limits.max_burst_size = 0
        convert.fill_defaults(merged, frozenset(paths))
        checks.check_queue_settings(merged)
        self._replace(queue, merged)
        return queue

    def import_yaml(self, messages: list[Any]) -> None:
        """Bring the queues of a queue.yaml in, and disable those of an earlier one that it does not name."""
        named = {message.name for message in messages}
        for message in messages:
            if message.name in self._queues:
                queue = self._queues[message.name]
                message.state = queue.message.state if queue.message.state != DISABLED else RUNNING
                if queue.message.HasField("purge_time"):
                    message.purge_time.CopyFrom(queue.message.purge_time)
                convert.fill_defaults(message, frozenset({"retry_config.max_doublings"}))
                checks.check_queue_settings(message)
                self._replace(queue, message)
            else:
                self.create(message, from_yaml=True, explicit=frozenset({"retry_config.max_doublings"}))
        for queue in self.all():
            if queue.from_yaml and queue.name not in named:
                self._set_state(queue, DISABLED)

    def ensure(self, name: str) -> Queue:
        """Return a queue, made with the defaults if it is missing. Raises ApiError."""
        return self._queues.get(name) or self.create(QueueMessage(name=check_queue(name)))

    def delete(self, name: str) -> None:
        queue, now = self.get(name), self.clock.now()
        queue.schedule.purge(now)
        del self._queues[name]
        self._gone[name] = now + limits.QUEUE_NAME_TAKEN
        self._journal.drop_queue(name, self._gone[name])

    def purge(self, name: str) -> Queue:
        queue, now = self.get(name), self.clock.now()
        queue.schedule.purge(now)
        queue.message.purge_time.FromMicroseconds(now)
        self._journal.purge(queue.stored(), now + queue.name_taken)
        return queue

    def pause(self, name: str) -> Queue:
        return self._set_state(self.get(name), PAUSED)

    def resume(self, name: str) -> Queue:
        return self._set_state(self.get(name), RUNNING)

    def reset(self) -> None:
        """Forget everything, taken names too."""
        for queue in self.all():
            queue.schedule.purge(self.clock.now())
        self._queues.clear()
        self._gone.clear()
        self._journal.clear()

    # Tasks

    def add_task(self, queue: Queue, task_id: str | None, task: Any) -> Entry:
        """Add a task that was checked; an id of None is made up. Raises ApiError ALREADY_EXISTS."""
        kind = task.WhichOneof("message_type")
        default, *_ = limits.HTTP_DEADLINE if kind == "http_request" else limits.APP_ENGINE_DEADLINE
        retry = None
        if task.HasField("retry_config"):
            convert.fill_retry_defaults(task.retry_config)
            checks.check_retry(task.retry_config, "Task.retryConfig")
            retry = convert.retry_policy(task.retry_config)
        eta = task.schedule_time.ToMicroseconds() if task.HasField("schedule_time") else None
        try:
            entry = queue.schedule.add(
                task_id or str(self._random.randrange(10**18, 10**19)),
                convert.stored(task),
                now=self.clock.now(),
                eta=eta,
                deadline=convert.microseconds(task.dispatch_deadline) // 1_000 * 1_000 or default,
                retry=retry,
                named=task_id is not None,
            )
        except Conflict as error:
            message = NAME_USED if error.code == "task-name-used" else f"Task already exists: {task_id}"
            raise ApiError(StatusCode.ALREADY_EXISTS, message) from error
        self._journal.put_task(queue.name, entry)
        self.changed(queue)
        return entry

    def get_task(self, queue: Queue, task_id: str) -> Entry:
        try:
            return queue.schedule.get(task_id, self.clock.now())
        except NotFound as error:
            raise ApiError(StatusCode.NOT_FOUND, f"Task does not exist: {task_id}") from error

    def delete_task(self, queue: Queue, task_id: str) -> None:
        entry = self.get_task(queue, task_id)
        queue.schedule.delete(task_id, self.clock.now())
        self._drop(queue, entry)

    def run_task(self, queue: Queue, task_id: str) -> Dispatch:
        """Start an attempt now, whatever the queue's state; the caller sends it."""
        self.get_task(queue, task_id)
        dispatch = queue.schedule.force(task_id, self.clock.now())
        self._journal.put_task(queue.name, dispatch.entry)
        return dispatch

    def due(self, queue: Queue) -> list[Dispatch]:
        dispatches = queue.schedule.due(self.clock.now())
        for dispatch in dispatches:
            self._journal.put_task(queue.name, dispatch.entry)
        return dispatches

    def finish(self, queue: Queue, dispatch: Dispatch, outcome: Outcome) -> Settlement:
        settlement = queue.schedule.finish(dispatch, outcome, self.clock.now())
        if settlement.ending in (Ending.RETRY, Ending.RUNNING) and settlement.entry is not None:
            self._journal.put_task(queue.name, settlement.entry)
        elif settlement.ending in (Ending.SUCCEEDED, Ending.EXHAUSTED) and settlement.entry is not None:
            self._drop(queue, settlement.entry)
        return settlement

    def _drop(self, queue: Queue, entry: Entry) -> None:
        now = self.clock.now()
        until = now + queue.name_taken if entry.named else None
        self._journal.drop_task(queue.name, entry, now=now, taken_until=until)

    def _hold(self, message: Any, from_yaml: bool) -> Queue:
        queue = Queue(
            message=message,
            schedule=Schedule(
                convert.rate_limits(message, self._ramp),
                convert.retry_policy(message.retry_config),
                now=self.clock.now(),
                tombstone=limits.NAME_TAKEN_YAML if from_yaml else limits.NAME_TAKEN,
                retention=limits.RETENTION,
            ),
            from_yaml=from_yaml,
        )
        if message.state != RUNNING:
            queue.schedule.pause()
        self._queues[queue.name] = queue
        return queue

    def _replace(self, queue: Queue, message: Any) -> None:
        queue.message = message
        queue.schedule.configure(
            convert.rate_limits(message, self._ramp), convert.retry_policy(message.retry_config), self.clock.now()
        )
        self._set_state(queue, message.state)

    def _set_state(self, queue: Queue, state: int) -> Queue:
        queue.message.state = state
        if state == RUNNING:
            queue.schedule.resume(self.clock.now())
        else:
            queue.schedule.pause()
        self._journal.put_queue(queue.stored())
        self.changed(queue)
        return queue


def _merge(source: Any, target: Any, paths: list[str]) -> None:
    mask = FieldMask(paths=paths or [field.name for field in source.DESCRIPTOR.fields])
    if not mask.IsValidForDescriptor(source.DESCRIPTOR):
        raise invalid(f"updateMask {', '.join(paths)!r} names a field that a Queue does not have")
    for path in mask.paths:
        parent, _, leaf = path.rpartition(".")
        origin, place = source, target
        for name in filter(None, parent.split(".")):
            origin, place = getattr(origin, name), getattr(place, name)
        place.ClearField(leaf)
    mask.MergeMessage(source, target, replace_message_field=True, replace_repeated_field=True)
