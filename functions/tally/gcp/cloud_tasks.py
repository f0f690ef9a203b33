"""The Dispatcher on Cloud Tasks and on its emulator. The service's own limits are documented with its v2 API."""

from collections.abc import Sequence
from typing import Any, Final

from google.cloud import tasks_v2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tally.clock import SECOND, from_datetime
from tally.errors import Refused
from tally.gcp import calls
from tally.gcp.clients import Clients
from tally.ports import DispatchStats, HttpTask
from tally.retry import RetryPolicy

_CREATE: Final = calls.Policy(name="create-task", seconds=10)  # repeated by the caller, who knows the name
_LISTED: Final = 1_000


class CloudTasksDispatcher:
    """`account` is in the OIDC tokens of tasks with an audience. Queues exist (Terraform), or `prepare` makes them."""

    def __init__(self, clients: Clients, project: str, location: str, account: str) -> None:
        self._clients = clients
        self._parent = f"projects/{project}/locations/{location}"
        self._account = account

    async def prepare(self, queues: Sequence[str]) -> None:
        """Make missing queues, for an emulator."""
        for queue in queues:
            message = tasks_v2.Queue(name=self._queue(queue))
            request = tasks_v2.CreateQueueRequest(parent=self._parent, queue=message)
            try:
                await calls.call(calls.ADMIN, self._clients.tasks.create_queue, request)
            except Refused as error:
                if error.status != "ALREADY_EXISTS":
                    raise

    async def create(self, queue: str, task: HttpTask) -> None:
        request = tasks_v2.CreateTaskRequest(parent=self._queue(queue), task=self._task(queue, task))
        await calls.call(_CREATE, self._clients.tasks.create_task, request)

    async def delete(self, queue: str, task_id: str) -> bool:
        request = tasks_v2.DeleteTaskRequest(name=f"{self._queue(queue)}/tasks/{task_id}")
        return await self._found(self._clients.tasks.delete_task, request)

    async def run(self, queue: str, task_id: str) -> bool:
        request = tasks_v2.RunTaskRequest(name=f"{self._queue(queue)}/tasks/{task_id}")
        return await self._found(self._clients.tasks.run_task, request)

    async def purge(self, queue: str) -> None:
        request = tasks_v2.PurgeQueueRequest(name=self._queue(queue))
        await calls.call(calls.ADMIN, self._clients.tasks.purge_queue, request)

    async def pause(self, queue: str) -> None:
        request = tasks_v2.PauseQueueRequest(name=self._queue(queue))
        await calls.call(calls.ADMIN, self._clients.tasks.pause_queue, request)

    async def resume(self, queue: str) -> None:
        request = tasks_v2.ResumeQueueRequest(name=self._queue(queue))
        await calls.call(calls.ADMIN, self._clients.tasks.resume_queue, request)

    async def stats(self, queue: str) -> DispatchStats:
        """Count the first 1,000 tasks: version 2 of the service has no numbers of its own."""
        name = self._queue(queue)
        state = await calls.call(calls.ADMIN, self._clients.tasks.get_queue, tasks_v2.GetQueueRequest(name=name))
        request = tasks_v2.ListTasksRequest(parent=name, page_size=_LISTED)
        pager = await calls.call(calls.ADMIN, self._clients.tasks.list_tasks, request)
        page = await anext(aiter(pager.pages))
        paused = state.state == tasks_v2.Queue.State.PAUSED
        return DispatchStats(
            tasks=len(page.tasks),
            oldest_eta=min((from_datetime(task.schedule_time) for task in page.tasks), default=None),
            in_flight=sum(task.dispatch_count > task.response_count for task in page.tasks),
            enforced_rate=0.0 if paused else state.rate_limits.max_dispatches_per_second,
            paused=paused,
            truncated=bool(page.next_page_token),
        )

    async def close(self) -> None:
        await self._clients.close()

    async def _found(self, method: Any, request: Any) -> bool:
        """Call a method about one task; return False when there is no such task."""
        try:
            await calls.call(calls.ADMIN, method, request)
        except Refused as error:
            if error.status != "NOT_FOUND":
                raise
            return False
        return True

    def _queue(self, queue: str) -> str:
        return f"{self._parent}/queues/{queue}"

    def _task(self, queue: str, task: HttpTask) -> Any:
        request: dict[str, Any] = {
            "url": task.url,
            "http_method": tasks_v2.HttpMethod[task.method],
            "headers": dict(task.headers),
            "body": task.body,
        }
        if task.audience:
            request["oidc_token"] = {"service_account_email": self._account, "audience": task.audience}
        made: dict[str, Any] = {
            "name": f"{self._queue(queue)}/tasks/{task.id}",
            "http_request": request,
            "dispatch_deadline": _duration(task.deadline),
        }
        if task.at is not None:
            made["schedule_time"] = Timestamp(seconds=task.at // SECOND, nanos=task.at % SECOND * 1_000)
        if task.retry is not None:
            made["retry_config"] = _retry(task.retry)
        return tasks_v2.Task(made)


def _retry(policy: RetryPolicy) -> dict[str, Any]:
    return {
        "max_attempts": policy.max_attempts,
        "max_retry_duration": _duration(policy.max_retry_duration),
        "min_backoff": _duration(policy.min_backoff),
        "max_backoff": _duration(policy.max_backoff),
        "max_doublings": policy.max_doublings,
    }


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMicroseconds(round(seconds * SECOND))
    return duration
