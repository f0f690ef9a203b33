"""Between the API's messages and the schedule's values. A stored task is its own part of a Task message, serialized."""

import re
from math import ceil
from typing import Any

from emulator.cloud_tasks import limits
from emulator.cloud_tasks.messages import BASIC, FULL, AppEngineRouting, Task
from emulator.cloud_tasks.names import location_of, project_of
from tally.clock import SECOND
from tally.retry import RetryPolicy
from tally.tasks.entry import Attempt, Entry
from tally.tasks.rate import Ramp, RateLimits

STATUS = re.compile(r"\w+\((?P<code>\d+)\)")


def microseconds(duration: Any) -> int:
    return int(duration.seconds) * SECOND + int(duration.nanos) // 1_000


def fill_defaults(queue: Any, explicit: frozenset[str] = frozenset()) -> None:
    """Set what the service picks for unset fields; `explicit` are paths whose zero was asked for by an update mask."""
    rate, retry = queue.rate_limits, queue.retry_config
    rate.max_dispatches_per_second = rate.max_dispatches_per_second or limits.DEFAULT_DISPATCHES_PER_SECOND
    rate.max_concurrent_dispatches = rate.max_concurrent_dispatches or limits.DEFAULT_CONCURRENT
    rate.max_burst_size = rate.max_burst_size or max(1, ceil(rate.max_dispatches_per_second))
    fill_retry_defaults(retry, keep_zero_doublings="retry_config.max_doublings" in explicit)


def fill_retry_defaults(retry: Any, *, keep_zero_doublings: bool = False) -> None:
    retry.max_attempts = retry.max_attempts or limits.DEFAULT_ATTEMPTS
    if not retry.HasField("min_backoff"):
        retry.min_backoff.FromMicroseconds(
            min(limits.DEFAULT_MIN_BACKOFF, microseconds(retry.max_backoff) or limits.DEFAULT_MIN_BACKOFF)
        )
    if not retry.HasField("max_backoff"):
        retry.max_backoff.FromMicroseconds(max(limits.DEFAULT_MAX_BACKOFF, microseconds(retry.min_backoff)))
    if not keep_zero_doublings:
        retry.max_doublings = retry.max_doublings or limits.DEFAULT_DOUBLINGS
    retry.max_retry_duration.nanos = 0  # documented: truncated to the second
    if not retry.max_retry_duration.seconds:
        retry.ClearField("max_retry_duration")


def rate_limits(queue: Any, ramp: Ramp | None) -> RateLimits:
    rate = queue.rate_limits
    return RateLimits(
        per_second=rate.max_dispatches_per_second,
        burst=rate.max_burst_size,
        concurrent=rate.max_concurrent_dispatches,
        ramp=ramp,
    )


def retry_policy(retry: Any) -> RetryPolicy:
    """Return the policy of a RetryConfig whose defaults are filled."""
    return RetryPolicy(
        max_attempts=retry.max_attempts,
        max_retry_duration=float(retry.max_retry_duration.seconds),
        min_backoff=microseconds(retry.min_backoff) / SECOND,
        max_backoff=microseconds(retry.max_backoff) / SECOND,
        max_doublings=retry.max_doublings,
    )


def stored(task: Any) -> bytes:
    """Serialize what the caller gave; what the schedule knows is left out."""
    own = Task()
    own.CopyFrom(task)
    for name in ("name", "schedule_time", "create_time", "first_attempt", "last_attempt", "view"):
        own.ClearField(name)
    own.dispatch_count = own.response_count = 0
    return bytes(own.SerializeToString())


def stored_task(entry: Entry) -> Any:
    return Task.FromString(entry.payload)


def task_message(queue: Any, entry: Entry, view: int) -> Any:
    """Return the Task as the API shows it; every view but FULL leaves the body out."""
    task = stored_task(entry)
    task.name = f"{queue.name}/tasks/{entry.id}"
    task.schedule_time.FromMicroseconds(entry.eta)
    task.create_time.seconds = entry.created // SECOND
    task.dispatch_deadline.FromMicroseconds(entry.deadline)
    task.dispatch_count = entry.dispatches
    task.response_count = entry.responses
    if entry.first_dispatch is not None:
        task.first_attempt.dispatch_time.FromMicroseconds(entry.first_dispatch)
    if entry.last is not None:
        _fill_attempt(task.last_attempt, entry.last)
    kind = task.WhichOneof("message_type")
    if kind == "app_engine_http_request":
        task.app_engine_http_request.app_engine_routing.CopyFrom(routing(queue, task))
    task.view = FULL if view == FULL else BASIC
    if task.view == BASIC:
        getattr(task, kind).ClearField("body")
    return task


def routing(queue: Any, task: Any) -> Any:
    """Return where an App Engine task goes: the queue's override wholly, else the task's own; with its host."""
    found = AppEngineRouting()
    override = queue.HasField("app_engine_routing_override")
    found.CopyFrom(queue.app_engine_routing_override if override else task.app_engine_http_request.app_engine_routing)
    parts = [part for part in (found.instance, found.version, found.service) if part]
    found.host = ".".join([*parts, f"{project_of(location_of(queue.name))}.appspot.com"])
    return found


def _fill_attempt(message: Any, attempt: Attempt) -> None:
    message.schedule_time.FromMicroseconds(attempt.scheduled)
    message.dispatch_time.FromMicroseconds(attempt.dispatched)
    if attempt.responded is not None:
        message.response_time.FromMicroseconds(attempt.responded)
        match = STATUS.match(attempt.status)
        message.response_status.code = int(match["code"]) if match else 0
        message.response_status.message = attempt.status
