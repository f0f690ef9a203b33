"""Reads App Engine's queue.yaml into queues of the API.

Its reference: cloud.google.com/appengine/docs/standard/reference/queueref
"""

import re
from typing import Any

import yaml

from emulator.cloud_tasks.errors import invalid
from emulator.cloud_tasks.messages import Queue
from emulator.cloud_tasks.names import check_queue
from tally.clock import SECOND
from tally.retry import UNLIMITED
from tally.tasks.entry import DAY, HOUR, MINUTE

RATE_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
AGE_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
DEFAULT_BUCKET = 5
QUEUE_KEYS = {
    "name",
    "mode",
    "rate",
    "bucket_size",
    "max_concurrent_requests",
    "retry_parameters",
    "target",
    "acl",
    "total_storage_limit",
}
RETRY_KEYS = {"task_retry_limit", "task_age_limit", "min_backoff_seconds", "max_backoff_seconds", "max_doublings"}


def read(text: str, parent: str) -> list[Any]:
    """Return the file's push queues below a location; pull queues are left out (Cloud Tasks v2 has none).

    Raises ApiError naming the key that is wrong.
    """
    content = yaml.safe_load(text) or {}
    if not isinstance(content, dict) or not isinstance(content.get("queue") or [], list):
        raise invalid("queue.yaml: want a mapping with the list `queue`")
    unknown = set(content) - {"queue", "total_storage_limit"}
    if unknown:
        raise invalid(f"queue.yaml: unknown key {', '.join(sorted(map(str, unknown)))}")
    entries = content.get("queue") or []
    queues = [_queue(entry, parent) for entry in entries if _is_push(entry)]
    names = [queue.name for queue in queues]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise invalid(f"queue.yaml: {', '.join(sorted(twice))} is there twice")
    return queues


def _is_push(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise invalid(f"queue.yaml: a queue needs a name: {entry!r}")
    unknown = set(entry) - QUEUE_KEYS
    if unknown:
        raise invalid(f"queue.yaml: queue {entry['name']}: unknown key {', '.join(sorted(map(str, unknown)))}")
    mode = entry.get("mode", "push")
    if mode not in ("push", "pull"):
        raise invalid(f"queue.yaml: queue {entry['name']}: mode {mode!r} must be push or pull")
    return bool(mode == "push")


def _queue(entry: dict[str, Any], parent: str) -> Any:
    queue = Queue(name=check_queue(f"{parent}/queues/{entry['name']}"))
    where = f"queue.yaml: queue {entry['name']}"
    rate = queue.rate_limits
    rate.max_dispatches_per_second = _rate(entry.get("rate", "5/s"), where)
    rate.max_burst_size = int(entry.get("bucket_size", DEFAULT_BUCKET))
    rate.max_concurrent_dispatches = int(entry.get("max_concurrent_requests", 0))
    _retry(queue.retry_config, entry.get("retry_parameters") or {}, where)
    *version, service = str(entry["target"]).split(".") if entry.get("target") else [""]
    if service:
        queue.app_engine_routing_override.service = service
        queue.app_engine_routing_override.version = ".".join(version)
    return queue


def _retry(retry: Any, parameters: dict[str, Any], where: str) -> None:
    unknown = set(parameters) - RETRY_KEYS
    if unknown:
        raise invalid(f"{where}: unknown retry parameter {', '.join(sorted(map(str, unknown)))}")
    limit = parameters.get("task_retry_limit")
    retry.max_attempts = UNLIMITED if limit is None else int(limit) + 1
    if "task_age_limit" in parameters:
        retry.max_retry_duration.FromMicroseconds(_age(str(parameters["task_age_limit"]), where))
    for key, field in (("min_backoff_seconds", retry.min_backoff), ("max_backoff_seconds", retry.max_backoff)):
        if key in parameters:
            field.FromMicroseconds(round(float(parameters[key]) * SECOND))
    retry.max_doublings = int(parameters.get("max_doublings", 16))


def _rate(text: Any, where: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*([smhd])\s*", str(text))
    if not match:
        raise invalid(f"{where}: rate {text!r} must be a number, a slash and s, m, h or d")
    return float(match[1]) / RATE_UNITS[match[2]]


def _age(text: str, where: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not match:
        raise invalid(f"{where}: task_age_limit {text!r} must be a number and s, m, h or d")
    return round(float(match[1]) * AGE_UNITS[match[2]])
