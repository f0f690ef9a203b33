"""The service's documented limits, from its quotas page (cloud.google.com/tasks/docs/quotas) and the API's own text."""

from tally.clock import SECOND
from tally.tasks.entry import DAY, HOUR, MINUTE

TASK_BYTES = 1 << 20  # quotas: 1 MB, read as App Engine's SDK reads its own 100 KB: in binary
HEADERS_BYTES = 80 * 1024  # HttpRequest.headers: "must be less than 80KB"
URL_CHARACTERS = 2083  # HttpRequest.url, AppEngineHttpRequest.relative_uri
SCHEDULE_AHEAD = 30 * DAY  # quotas: maximum schedule time
RETENTION = 31 * DAY  # quotas, CreateQueue
NAME_TAKEN = 24 * HOUR  # CreateTaskRequest.task: "up to 24 hours"; the upper bound is what a program must bear
NAME_TAKEN_YAML = 9 * DAY  # the same text, for queues from queue.yaml
QUEUE_NAME_TAKEN = 3 * DAY  # DeleteQueue: "up to 3 days"
QUEUES = 1_000  # quotas: queues of a project and location
DISPATCHES_PER_SECOND = 500.0  # RateLimits.max_dispatches_per_second
CONCURRENT_DISPATCHES = 5_000  # RateLimits.max_concurrent_dispatches
BATCH_CREATE = 100  # BatchCreateTasksRequest.requests
BATCH_DELETE = 1_000  # BatchDeleteTasksRequest.names
QUEUES_PAGE = 9_800  # ListQueuesRequest.page_size
TASKS_PAGE = 1_000  # ListTasksRequest.page_size
PAGE_TOKEN_LIFETIME = 2 * HOUR  # ListTasksRequest.page_token

# Task.dispatch_deadline: default, least, most
HTTP_DEADLINE = (10 * MINUTE, 15 * SECOND, 30 * MINUTE)
APP_ENGINE_DEADLINE = (10 * MINUTE, 15 * SECOND, 24 * HOUR + 15 * SECOND)

# What a queue gets for a field that is not set (gcloud's and the console's answer to an empty CreateQueue)
DEFAULT_DISPATCHES_PER_SECOND = 500.0
DEFAULT_CONCURRENT = 1_000
DEFAULT_ATTEMPTS = 100
DEFAULT_MIN_BACKOFF = SECOND // 10
DEFAULT_MAX_BACKOFF = HOUR
DEFAULT_DOUBLINGS = 16
