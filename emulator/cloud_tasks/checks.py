"""What the service refuses: every documented limit of a queue or a task, as INVALID_ARGUMENT naming the limit."""

import re
from typing import Any
from urllib.parse import urlsplit

from emulator.cloud_tasks import limits
from emulator.cloud_tasks.convert import microseconds
from emulator.cloud_tasks.errors import invalid
from emulator.cloud_tasks.messages import METHODS, METHODS_WITH_BODY, POST
from tally.clock import SECOND, to_datetime

TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def check_queue_settings(queue: Any) -> None:
    """Check a queue whose defaults are filled."""
    rate = queue.rate_limits
    if not 0 < rate.max_dispatches_per_second <= limits.DISPATCHES_PER_SECOND:
        raise invalid(
            f"Queue.rateLimits.maxDispatchesPerSecond {rate.max_dispatches_per_second:g} must be more than 0 "
            f"and at most {limits.DISPATCHES_PER_SECOND:g}"
        )
    if not 0 < rate.max_concurrent_dispatches <= limits.CONCURRENT_DISPATCHES:
        raise invalid(
            f"Queue.rateLimits.maxConcurrentDispatches {rate.max_concurrent_dispatches} must be between 1 "
            f"and {limits.CONCURRENT_DISPATCHES}"
        )
    check_retry(queue.retry_config, "Queue.retryConfig")
    if queue.HasField("http_target"):
        _check_http_target(queue.http_target)
    ratio = queue.stackdriver_logging_config.sampling_ratio
    if not 0 <= ratio <= 1:
        raise invalid(f"Queue.stackdriverLoggingConfig.samplingRatio {ratio:g} must be between 0.0 and 1.0")


def check_retry(retry: Any, field: str) -> None:
    """Check a RetryConfig whose defaults are filled."""
    if retry.max_attempts < -1:
        raise invalid(f"{field}.maxAttempts {retry.max_attempts} must be at least -1")
    if retry.max_doublings < 0:
        raise invalid(f"{field}.maxDoublings {retry.max_doublings} must be at least 0")
    for name in ("max_retry_duration", "min_backoff", "max_backoff"):
        if microseconds(getattr(retry, name)) < 0:
            raise invalid(f"{field}.{name} must not be negative")
    if microseconds(retry.min_backoff) > microseconds(retry.max_backoff):
        raise invalid(f"{field}.minBackoff must be at most maxBackoff")


def check_task(task: Any, now: int) -> None:
    """Check a new task. Raises ApiError."""
    kind = task.WhichOneof("message_type")
    if kind is None:
        raise invalid("Task must have one of httpRequest and appEngineHttpRequest")
    size = task.ByteSize()
    if size > limits.TASK_BYTES:
        raise invalid(f"Task size too large: {size} bytes, the limit is {limits.TASK_BYTES}")
    _check_times(task, kind, now)
    request = getattr(task, kind)
    method = METHODS.get(request.http_method or POST)
    if method is None:
        raise invalid(f"Task.{kind}.httpMethod {request.http_method} is no HTTP method")
    bodied = METHODS_WITH_BODY if kind == "http_request" else {"POST", "PUT"}
    if request.body and method not in bodied:
        raise invalid(
            f"Task.{kind}.body is not allowed with the method {method}: only with {', '.join(sorted(bodied))}"
        )
    _check_headers(request.headers.items(), f"Task.{kind}.headers")
    if kind == "http_request":
        _check_url(request.url)
        _check_task_authorization(request)
    else:
        _check_relative_uri(request.relative_uri)


def _check_times(task: Any, kind: str, now: int) -> None:
    if task.HasField("schedule_time"):
        if not 0 <= task.schedule_time.nanos < 1_000_000_000:
            raise invalid(f"Task.scheduleTime has {task.schedule_time.nanos} ns: must be 0 to 999,999,999")
        eta = task.schedule_time.seconds * SECOND + task.schedule_time.nanos // 1_000
        if eta > now + limits.SCHEDULE_AHEAD:
            raise invalid(
                f"The Task.scheduleTime, {_moment(eta)}, is too far in the future. "
                f"Schedule time must be no more than {limits.SCHEDULE_AHEAD // (3600 * SECOND)}h in the future."
            )
    if task.HasField("dispatch_deadline"):
        deadline = microseconds(task.dispatch_deadline)
        _, least, most = limits.HTTP_DEADLINE if kind == "http_request" else limits.APP_ENGINE_DEADLINE
        if kind == "app_engine_http_request" and deadline == 0:
            return
        if not least <= deadline <= most:
            raise invalid(
                f"The request.task.dispatchDeadline, {deadline / SECOND:g}s, must be between "
                f"{least // SECOND}s and {most // SECOND}s"
            )


def _moment(eta: int) -> str:
    try:
        return to_datetime(eta).isoformat()
    except OverflowError:
        return f"{eta // SECOND} s since 1970"


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise invalid(f"HttpRequest.url {url[:100]!r} must begin with http:// or https://")
    if len(url) > limits.URL_CHARACTERS:
        raise invalid(f"HttpRequest.url has {len(url)} characters, the limit is {limits.URL_CHARACTERS}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise invalid(f"HttpRequest.url {url[:100]!r} is no URL: {error}") from error
    if not host:
        raise invalid(f"HttpRequest.url {url[:100]!r} has no host")


def _check_relative_uri(uri: str) -> None:
    if uri and not uri.startswith("/"):
        raise invalid(f"AppEngineHttpRequest.relativeUri {uri[:100]!r} must begin with /")
    if re.search(r"\s", uri):
        raise invalid(f"AppEngineHttpRequest.relativeUri {uri[:100]!r} must not have spaces")
    if len(uri) > limits.URL_CHARACTERS:
        raise invalid(
            f"AppEngineHttpRequest.relativeUri has {len(uri)} characters, the limit is {limits.URL_CHARACTERS}"
        )


def _check_headers(headers: Any, field: str) -> None:
    size = 0
    for name, value in headers:
        size += len(name.encode()) + len(value.encode())
        if not TOKEN.fullmatch(name):
            raise invalid(f"{field} has a name that is no HTTP header name: {name[:100]!r}")
        if any(character in value for character in "\r\n\0"):
            raise invalid(f"{field} has a value with a line break or NUL: {name}")
    if size >= limits.HEADERS_BYTES:
        raise invalid(f"{field} has {size} bytes, must be less than {limits.HEADERS_BYTES}")


def _check_task_authorization(request: Any) -> None:
    kind = request.WhichOneof("authorization_header")
    if kind and not getattr(request, kind).service_account_email:
        raise invalid(f"HttpRequest.{kind}.serviceAccountEmail must be set")


def _check_http_target(target: Any) -> None:
    uri = target.uri_override
    if uri.HasField("host") and not uri.host:
        raise invalid("Queue.httpTarget.uriOverride.host must not be empty")
    if uri.HasField("port") and not 0 <= uri.port <= 65_535:
        raise invalid(f"Queue.httpTarget.uriOverride.port {uri.port} must be 0 (clears it) to 65535")
    _check_headers(
        [(override.header.key, override.header.value) for override in target.header_overrides],
        "Queue.httpTarget.headerOverrides",
    )
    kind = target.WhichOneof("authorization_header")
    if kind is None:
        return
    token = getattr(target, kind)
    second = "audience" if kind == "oidc_token" else "scope"
    if not token.service_account_email or not getattr(token, second):
        raise invalid(f"Queue.httpTarget.{kind} must have both serviceAccountEmail and {second}")
