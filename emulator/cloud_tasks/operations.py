"""Batch create and batch delete: not atomic, one outcome a request, reported as long-running operations.

The work is done before the first answer, which says RUNNING all the same, as the service's does: a caller must poll
GetOperation.
"""

import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.protobuf.message import Message
from grpc import StatusCode

from emulator.cloud_tasks.errors import ApiError
from emulator.cloud_tasks.messages import BatchCreateTasksMetadata, BatchCreateTasksResponse, BatchDeleteTasksMetadata
from emulator.cloud_tasks.names import location_of

KEPT = 1_000
ABORTED = 10  # google.rpc.Code, documented for batch delete


class Operations:
    """Finished operations by name, the latest KEPT."""

    def __init__(self) -> None:
        self._finished: OrderedDict[str, Any] = OrderedDict()

    def get(self, name: str) -> Any:
        try:
            return self._finished[name]
        except KeyError:
            raise ApiError(StatusCode.NOT_FOUND, f"Operation does not exist: {name}") from None

    def batch_create(self, queue: str, request_id: str, creates: Sequence[Callable[[], Any]], now: int) -> Any:
        """Run each creation; the response holds the tasks that were created."""

        def respond(created: list[Any]) -> Message:
            response: Message = BatchCreateTasksResponse(tasks=created)
            return response

        return self._run(queue, request_id, creates, BatchCreateTasksMetadata(), respond, now)

    def batch_delete(self, queue: str, request_id: str, deletes: Sequence[Callable[[], None]], now: int) -> Any:
        return self._run(queue, request_id, deletes, BatchDeleteTasksMetadata(), lambda _: empty_pb2.Empty(), now)

    def reset(self) -> None:
        self._finished.clear()

    def _run(
        self,
        queue: str,
        request_id: str,
        calls: Sequence[Callable[[], Any]],
        metadata: Any,
        respond: Callable[[list[Any]], Message],
        now: int,
    ) -> Any:
        name = f"{location_of(queue)}/operations/{request_id or uuid.uuid4()}"
        if name in self._finished:
            return self._finished[name]
        metadata.start_time.FromMicroseconds(now)
        metadata.state = metadata.State.Value("RUNNING")
        started = operations_pb2.Operation(name=name)
        started.metadata.Pack(metadata)
        results = []
        for index, call in enumerate(calls):
            try:
                results.append(call())
            except ApiError as error:
                metadata.failed_requests[index].code = error.number
                metadata.failed_requests[index].message = error.message
        metadata.end_time.FromMicroseconds(now)
        metadata.state = metadata.State.Value("PARTIALLY_SUCCEEDED" if metadata.failed_requests else "SUCCEEDED")
        self._keep(name, metadata, respond(results), all_failed=bool(calls) and not results)
        return started

    def _keep(self, name: str, metadata: Any, response: Message, *, all_failed: bool) -> None:
        finished = operations_pb2.Operation(name=name, done=True)
        finished.metadata.Pack(metadata)
        if all_failed:
            finished.error.code = ABORTED
            finished.error.message = (
                "None of the requests succeeded, refer to "
                f"{metadata.DESCRIPTOR.name}.failed_requests for individual error details"
            )
        else:
            finished.response.Pack(response)
        self._finished[name] = finished
        if len(self._finished) > KEPT:
            self._finished.popitem(last=False)
