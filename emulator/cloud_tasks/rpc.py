"""The RPCs with their messages and HTTP bindings (google/cloud/tasks/v2/cloudtasks.proto), and the gRPC server."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2

from emulator.cloud_tasks import messages as m
from emulator.cloud_tasks.api import CloudTasks
from emulator.cloud_tasks.errors import ApiError

MESSAGE_BYTES = 64 << 20  # a full batch is larger than gRPC's own 4 MiB
SERVICE = "google.cloud.tasks.v2.CloudTasks"
QUEUES = "{parent=projects/*/locations/*}/queues"
QUEUE = "{name=projects/*/locations/*/queues/*}"
TASKS = "{parent=projects/*/locations/*/queues/*}/tasks"
TASK = "{name=projects/*/locations/*/queues/*/tasks/*}"
RESOURCE = "{resource=projects/*/locations/*/queues/*}"


class Rpc(NamedTuple):
    """`body` is the request's field that an HTTP body fills, "*" the whole request, "" none."""

    service: str
    name: str
    request: Any
    verb: str
    path: str
    body: str

    @property
    def method(self) -> str:
        return re.sub(r"(?<!^)[A-Z]", lambda letter: "_" + letter[0], self.name).lower()


RPCS = (
    Rpc(SERVICE, "ListQueues", m.ListQueuesRequest, "GET", QUEUES, ""),
    Rpc(SERVICE, "GetQueue", m.GetQueueRequest, "GET", QUEUE, ""),
    Rpc(SERVICE, "CreateQueue", m.CreateQueueRequest, "POST", QUEUES, "queue"),
    Rpc(SERVICE, "UpdateQueue", m.UpdateQueueRequest, "PATCH", QUEUE.replace("name", "queue.name"), "queue"),
    Rpc(SERVICE, "DeleteQueue", m.DeleteQueueRequest, "DELETE", QUEUE, ""),
    Rpc(SERVICE, "PurgeQueue", m.PurgeQueueRequest, "POST", f"{QUEUE}:purge", "*"),
    Rpc(SERVICE, "PauseQueue", m.PauseQueueRequest, "POST", f"{QUEUE}:pause", "*"),
    Rpc(SERVICE, "ResumeQueue", m.ResumeQueueRequest, "POST", f"{QUEUE}:resume", "*"),
    Rpc(SERVICE, "GetIamPolicy", m.GetIamPolicyRequest, "POST", f"{RESOURCE}:getIamPolicy", "*"),
    Rpc(SERVICE, "SetIamPolicy", m.SetIamPolicyRequest, "POST", f"{RESOURCE}:setIamPolicy", "*"),
    Rpc(SERVICE, "TestIamPermissions", m.TestIamPermissionsRequest, "POST", f"{RESOURCE}:testIamPermissions", "*"),
    Rpc(SERVICE, "ListTasks", m.ListTasksRequest, "GET", TASKS, ""),
    Rpc(SERVICE, "GetTask", m.GetTaskRequest, "GET", TASK, ""),
    Rpc(SERVICE, "CreateTask", m.CreateTaskRequest, "POST", TASKS, "*"),
    Rpc(SERVICE, "BatchCreateTasks", m.BatchCreateTasksRequest, "POST", f"{TASKS}:batchCreate", "*"),
    Rpc(SERVICE, "DeleteTask", m.DeleteTaskRequest, "DELETE", TASK, ""),
    Rpc(SERVICE, "BatchDeleteTasks", m.BatchDeleteTasksRequest, "POST", f"{TASKS}:batchDelete", "*"),
    Rpc(SERVICE, "RunTask", m.RunTaskRequest, "POST", f"{TASK}:run", "*"),
    Rpc(SERVICE, "GetCmekConfig", m.GetCmekConfigRequest, "GET", "{name=projects/*/locations/*/cmekConfig}", ""),
    Rpc(
        SERVICE,
        "UpdateCmekConfig",
        m.UpdateCmekConfigRequest,
        "PATCH",
        "{cmek_config.name=projects/*/locations/*/cmekConfig}",
        "cmek_config",
    ),
    Rpc(
        "google.longrunning.Operations",
        "GetOperation",
        operations_pb2.GetOperationRequest,
        "GET",
        "{name=projects/*/locations/*/operations/*}",
        "",
    ),
    Rpc(
        "google.cloud.location.Locations",
        "ListLocations",
        locations_pb2.ListLocationsRequest,
        "GET",
        "{name=projects/*}/locations",
        "",
    ),
    Rpc(
        "google.cloud.location.Locations",
        "GetLocation",
        locations_pb2.GetLocationRequest,
        "GET",
        "{name=projects/*/locations/*}",
        "",
    ),
)


def server(api: CloudTasks) -> grpc.aio.Server:
    """Return a gRPC server, not started and without a port."""
    made = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
        ]
    )
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for rpc in RPCS:
        services.setdefault(rpc.service, {})[rpc.name] = grpc.unary_unary_rpc_method_handler(
            _handler(getattr(api, rpc.method)),
            request_deserializer=rpc.request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
    made.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, handlers) for name, handlers in services.items())
    )
    return made


def _handler(method: Callable[[Any], Any]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def handle(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return method(request)
        except ApiError as error:
            await context.abort(error.code, error.message)

    return handle
