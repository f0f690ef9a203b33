"""The methods of google.cloud.tasks.v2.CloudTasks (and of IAM, locations, operations), message in, message out.

Shared by gRPC and REST. Each raises ApiError; none waits, so a call is one step of the event loop.
"""

from typing import Any

from google.cloud.location import locations_pb2
from grpc import StatusCode

from emulator.cloud_tasks import checks, limits, pages
from emulator.cloud_tasks import messages as m
from emulator.cloud_tasks.convert import task_message
from emulator.cloud_tasks.dispatcher import Dispatcher
from emulator.cloud_tasks.errors import ApiError, invalid
from emulator.cloud_tasks.faults import Faults
from emulator.cloud_tasks.filters import matches
from emulator.cloud_tasks.names import check_location, check_queue, location_of, queue_id, split_task
from emulator.cloud_tasks.operations import Operations
from emulator.cloud_tasks.queues import Queue, Queues
from tally.tasks.entry import Entry


class CloudTasks:
    """One method an RPC, named as the RPC in snake case."""

    def __init__(self, queues: Queues, dispatcher: Dispatcher, faults: Faults) -> None:
        self._queues = queues
        self._dispatcher = dispatcher
        self._faults = faults
        self._operations = Operations()
        self._policies: dict[str, Any] = {}
        self._cmek: dict[str, Any] = {}

    def reset(self) -> None:
        """Forget everything but the fault plan."""
        for queue in self._queues.all():
            self._dispatcher.forget(queue)
        self._queues.reset()
        self._operations.reset()
        self._policies.clear()
        self._cmek.clear()

    # Queues

    def list_queues(self, request: Any) -> Any:
        location, now = check_location(request.parent), self._queues.clock.now()
        scope = f"{location} {request.filter}"
        start, size = pages.after(request.page_token, scope, now), pages.size(request.page_size, limits.QUEUES_PAGE)
        found = [
            queue.message
            for queue in self._queues.all()
            if location_of(queue.name) == location and queue.name > start and matches(queue.message, request.filter)
        ]
        token = pages.token(scope, found[size - 1].name, now) if len(found) > size else ""
        return m.ListQueuesResponse(queues=found[:size], next_page_token=token)

    def get_queue(self, request: Any) -> Any:
        return self._queue(request.name).message

    def create_queue(self, request: Any) -> Any:
        parent, name = check_location(request.parent), check_queue(request.queue.name)
        if location_of(name) != parent:
            raise invalid(f"Queue name {name} must begin with the parent, {parent}")
        return self._queues.create(request.queue).message

    def update_queue(self, request: Any) -> Any:
        check_queue(request.queue.name)
        return self._queues.update(request.queue, list(request.update_mask.paths)).message

    def delete_queue(self, request: Any) -> Any:
        self._dispatcher.forget(self._queue(request.name))
        self._queues.delete(request.name)
        return m.Empty()

    def purge_queue(self, request: Any) -> Any:
        return self._queues.purge(self._queue(request.name).name).message

    def pause_queue(self, request: Any) -> Any:
        return self._queues.pause(self._queue(request.name).name).message

    def resume_queue(self, request: Any) -> Any:
        return self._queues.resume(self._queue(request.name).name).message

    # Tasks

    def list_tasks(self, request: Any) -> Any:
        queue, now = self._queue(request.parent), self._queues.clock.now()
        start, size = pages.after(request.page_token, queue.name, now), pages.size(request.page_size, limits.TASKS_PAGE)
        found: list[Entry] = []
        for entry in queue.schedule.tasks(now):
            if entry.sequence > int(start or 0):
                if len(found) == size:
                    token = pages.token(queue.name, str(found[-1].sequence), now)
                    break
                found.append(entry)
        else:
            token = ""
        tasks = [task_message(queue.message, entry, request.response_view) for entry in found]
        return m.ListTasksResponse(tasks=tasks, next_page_token=token)

    def get_task(self, request: Any) -> Any:
        name = split_task(request.name)
        queue = self._queue(name.queue)
        return task_message(queue.message, self._queues.get_task(queue, name.id), request.response_view)

    def create_task(self, request: Any) -> Any:
        queue = self._queue(request.parent)
        where = queue_id(queue.name)
        if self._faults.hit("refuse-create", where):
            raise ApiError(StatusCode.UNAVAILABLE, "Fault plan: refuse-create")
        task_id = None
        if request.task.name:
            name = split_task(request.task.name)
            if name.queue != queue.name:
                raise invalid(f"Task name {request.task.name} must begin with the parent, {queue.name}/tasks/")
            task_id = name.id
        checks.check_task(request.task, self._queues.clock.now())
        entry = self._queues.add_task(queue, task_id, request.task)
        if self._faults.hit("lose-create-reply", where):
            raise ApiError(StatusCode.UNAVAILABLE, "Fault plan: lose-create-reply")
        return task_message(queue.message, entry, request.response_view)

    def delete_task(self, request: Any) -> Any:
        name = split_task(request.name)
        self._queues.delete_task(self._queue(name.queue), name.id)
        return m.Empty()

    def run_task(self, request: Any) -> Any:
        name = split_task(request.name)
        queue = self._queue(name.queue)
        dispatch = self._queues.run_task(queue, name.id)
        self._dispatcher.send(queue, dispatch)
        self._dispatcher.kick(queue)
        return task_message(queue.message, dispatch.entry, request.response_view)

    def batch_create_tasks(self, request: Any) -> Any:
        queue = self._queue(request.parent)
        if not 0 < len(request.requests) <= limits.BATCH_CREATE:
            raise invalid(f"requests has {len(request.requests)} entries, must be 1 to {limits.BATCH_CREATE}")
        for index, one in enumerate(request.requests):
            if one.parent and one.parent != queue.name:
                raise invalid(f"requests[{index}].parent {one.parent} must be the batch's parent, {queue.name}")
            one.parent = queue.name
        creates = [lambda one=one: self.create_task(one) for one in request.requests]
        return self._operations.batch_create(queue.name, request.request_id, creates, self._queues.clock.now())

    def batch_delete_tasks(self, request: Any) -> Any:
        queue = self._queue(request.parent)
        if not 0 < len(request.names) <= limits.BATCH_DELETE:
            raise invalid(f"names has {len(request.names)} entries, must be 1 to {limits.BATCH_DELETE}")
        for name in request.names:
            if split_task(name).queue != queue.name:
                raise invalid(f"Task name {name} must begin with the parent, {queue.name}/tasks/")
        deletes = [lambda name=name: self._queues.delete_task(queue, split_task(name).id) for name in request.names]
        return self._operations.batch_delete(queue.name, request.request_id, deletes, self._queues.clock.now())

    def get_operation(self, request: Any) -> Any:
        return self._operations.get(request.name)

    # IAM and CMEK: kept, not enforced

    def get_iam_policy(self, request: Any) -> Any:
        return self._policies.get(self._queue(request.resource).name, m.Policy())

    def set_iam_policy(self, request: Any) -> Any:
        self._policies[self._queue(request.resource).name] = request.policy
        return request.policy

    def test_iam_permissions(self, request: Any) -> Any:
        try:
            self._queue(request.resource)
        except ApiError:
            return m.TestIamPermissionsResponse()
        return m.TestIamPermissionsResponse(permissions=request.permissions)

    def get_cmek_config(self, request: Any) -> Any:
        return self._cmek.get(request.name, m.CmekConfig(name=request.name))

    def update_cmek_config(self, request: Any) -> Any:
        self._cmek[request.cmek_config.name] = request.cmek_config
        return request.cmek_config

    # Locations: those that have queues

    def list_locations(self, request: Any) -> Any:
        names = sorted({location_of(queue.name) for queue in self._queues.all()})
        found = [_location(name) for name in names if name.startswith(f"{request.name}/")]
        return locations_pb2.ListLocationsResponse(locations=found)

    def get_location(self, request: Any) -> Any:
        return _location(check_location(request.name))

    def _queue(self, name: str) -> Queue:
        return self._queues.get(check_queue(name))


def _location(name: str) -> Any:
    return locations_pb2.Location(name=name, location_id=name.rsplit("/", 1)[1])
