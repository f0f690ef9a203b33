"""Resource names: their patterns, as the API documents them, and their parts."""

import re
from typing import NamedTuple

from emulator.cloud_tasks.errors import invalid

PROJECT = r"projects/(?P<project>[A-Za-z0-9.:\-]+)"
LOCATION = PROJECT + r"/locations/(?P<location>[A-Za-z0-9\-]+)"
QUEUE = LOCATION + r"/queues/(?P<queue>[A-Za-z0-9\-]{1,100})"
TASK = QUEUE + r"/tasks/(?P<task>[A-Za-z0-9_\-]{1,500})"
_location, _queue, _task = (re.compile(pattern) for pattern in (LOCATION, QUEUE, TASK))


class TaskName(NamedTuple):
    queue: str
    id: str


def check_location(name: str) -> str:
    if not _location.fullmatch(name):
        raise invalid(f"Location name {name!r} must be projects/PROJECT_ID/locations/LOCATION_ID")
    return name


def check_queue(name: str) -> str:
    if not _queue.fullmatch(name):
        raise invalid(
            f"Queue name {name!r} must be projects/PROJECT_ID/locations/LOCATION_ID/queues/QUEUE_ID, "
            "QUEUE_ID of letters, digits and hyphens, at most 100 characters"
        )
    return name


def split_task(name: str) -> TaskName:
    match = _task.fullmatch(name)
    if not match:
        raise invalid(
            f"Task name {name[:700]!r} must be "
            "projects/PROJECT_ID/locations/LOCATION_ID/queues/QUEUE_ID/tasks/TASK_ID, "
            "TASK_ID of letters, digits, hyphens and underscores, at most 500 characters"
        )
    return TaskName(name[: match.end("queue")], match["task"])


def location_of(queue: str) -> str:
    return queue.split("/queues/", 1)[0]


def project_of(name: str) -> str:
    return name.split("/", 2)[1]


def queue_id(queue: str) -> str:
    return queue.rsplit("/", 1)[1]
