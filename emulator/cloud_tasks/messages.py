"""The protobuf classes of google.cloud.tasks.v2, plain: the client library's wrappers cost too much on a server."""

from typing import Any

from google.cloud.tasks_v2.types import cloudtasks, cmek_config, queue, target, task
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import empty_pb2


def plain(wrapper: Any) -> Any:
    """Return the generated class behind a proto-plus one."""
    return type(wrapper.pb(wrapper()))


Queue = plain(queue.Queue)
Task = plain(task.Task)
Attempt = plain(task.Attempt)
RetryConfig = plain(queue.RetryConfig)
RateLimits = plain(queue.RateLimits)
HttpTarget = plain(target.HttpTarget)
HttpRequest = plain(target.HttpRequest)
AppEngineHttpRequest = plain(target.AppEngineHttpRequest)
AppEngineRouting = plain(target.AppEngineRouting)
CmekConfig = plain(cmek_config.CmekConfig)

ListQueuesRequest = plain(cloudtasks.ListQueuesRequest)
ListQueuesResponse = plain(cloudtasks.ListQueuesResponse)
GetQueueRequest = plain(cloudtasks.GetQueueRequest)
CreateQueueRequest = plain(cloudtasks.CreateQueueRequest)
UpdateQueueRequest = plain(cloudtasks.UpdateQueueRequest)
DeleteQueueRequest = plain(cloudtasks.DeleteQueueRequest)
PurgeQueueRequest = plain(cloudtasks.PurgeQueueRequest)
PauseQueueRequest = plain(cloudtasks.PauseQueueRequest)
ResumeQueueRequest = plain(cloudtasks.ResumeQueueRequest)
ListTasksRequest = plain(cloudtasks.ListTasksRequest)
ListTasksResponse = plain(cloudtasks.ListTasksResponse)
GetTaskRequest = plain(cloudtasks.GetTaskRequest)
CreateTaskRequest = plain(cloudtasks.CreateTaskRequest)
DeleteTaskRequest = plain(cloudtasks.DeleteTaskRequest)
RunTaskRequest = plain(cloudtasks.RunTaskRequest)
BatchCreateTasksRequest = plain(cloudtasks.BatchCreateTasksRequest)
BatchCreateTasksResponse = plain(cloudtasks.BatchCreateTasksResponse)
BatchCreateTasksMetadata = plain(cloudtasks.BatchCreateTasksMetadata)
BatchDeleteTasksRequest = plain(cloudtasks.BatchDeleteTasksRequest)
BatchDeleteTasksMetadata = plain(cloudtasks.BatchDeleteTasksMetadata)
GetCmekConfigRequest = plain(cloudtasks.GetCmekConfigRequest)
UpdateCmekConfigRequest = plain(cloudtasks.UpdateCmekConfigRequest)

# These have no wrappers.
Empty = empty_pb2.Empty
Policy = policy_pb2.Policy
GetIamPolicyRequest = iam_policy_pb2.GetIamPolicyRequest
SetIamPolicyRequest = iam_policy_pb2.SetIamPolicyRequest
TestIamPermissionsRequest = iam_policy_pb2.TestIamPermissionsRequest
TestIamPermissionsResponse = iam_policy_pb2.TestIamPermissionsResponse

FULL = int(task.Task.View.FULL)
BASIC = int(task.Task.View.BASIC)
RUNNING, PAUSED, DISABLED = (
    int(state) for state in (queue.Queue.State.RUNNING, queue.Queue.State.PAUSED, queue.Queue.State.DISABLED)
)
POST = int(target.HttpMethod.POST)
METHODS = {int(method): method.name for method in target.HttpMethod if method.value}
METHODS_WITH_BODY = {"POST", "PUT", "PATCH"}
IF_NOT_EXISTS = int(target.UriOverride.UriOverrideEnforceMode.IF_NOT_EXISTS)
HTTP_SCHEME = int(target.UriOverride.Scheme.HTTP)
