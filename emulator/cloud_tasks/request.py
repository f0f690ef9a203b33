"""From a task to the HTTP request of one attempt: target, headers, token. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from emulator.cloud_tasks.convert import routing
from emulator.cloud_tasks.messages import HTTP_SCHEME, IF_NOT_EXISTS, METHODS, METHODS_WITH_BODY, POST
from emulator.cloud_tasks.names import queue_id
from tally.clock import SECOND
from tally.tasks.entry import Dispatch

HTTP_AGENT = "Google-Cloud-Tasks"
APP_ENGINE_AGENT = "AppEngine-Google; (+http://code.google.com/appengine)"
RESERVED = ("x-google-", "x-appengine-", "x-cloudtasks-")
COMPUTED = ("host", "content-length", "user-agent", "transfer-encoding", "connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """A request to send. `app_engine`: the rules of App Engine targets judge the answer."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes
    app_engine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the headers tell of earlier attempts; `previous_code` is the last answer's HTTP status, 0 = none."""

    retries: int
    responses: int
    previous_code: int
    previous_reason: str


Authorize = Callable[[Any, str], str | None]  # (HttpRequest or HttpTarget, URL) -> Authorization header


def build(
    queue: Any, task: Any, dispatch: Dispatch, history: History, authorize: Authorize, app_engine: str
) -> HttpCall:
    """Return the request of an attempt. `app_engine` is the base URL that stands for the project's App Engine app."""
    if task.HasField("http_request"):
        return _http(queue, task.http_request, dispatch, history, authorize)
    return _app_engine(queue, task, dispatch, history, app_engine)


def _http(queue: Any, request: Any, dispatch: Dispatch, history: History, authorize: Authorize) -> HttpCall:
    target = queue.http_target
    url = overridden_url(request.url, target.uri_override) if queue.HasField("http_target") else request.url
    method = METHODS[target.http_method or request.http_method or POST]
    headers = _own_headers(request.headers.items())
    for override in target.header_overrides:
        headers |= _own_headers([(override.header.key, override.header.value)])
    headers["user-agent"] = HTTP_AGENT
    headers |= _service_headers("X-CloudTasks-", queue, dispatch, history)
    source = target if target.WhichOneof("authorization_header") else request
    token = authorize(source, url)
    if token is not None:
        headers["authorization"] = token
    return HttpCall(
        method=method,
        url=url,
        headers=headers,
        body=request.body if method in METHODS_WITH_BODY else b"",
        app_engine=False,
    )


def _app_engine(queue: Any, task: Any, dispatch: Dispatch, history: History, base: str) -> HttpCall:
    request = task.app_engine_http_request
    headers = _own_headers(request.headers.items())
    agent = {name.lower(): value for name, value in request.headers.items()}.get("user-agent", "")
    headers["user-agent"] = f"{agent} {APP_ENGINE_AGENT}".strip()
    headers["host"] = routing(queue, task).host
    if request.body:
        headers.setdefault("content-type", "application/octet-stream")
    headers |= _service_headers("X-AppEngine-", queue, dispatch, history)
    return HttpCall(
        method=METHODS[request.http_method or POST],
        url=base.rstrip("/") + (request.relative_uri or "/"),
        headers=headers,
        body=request.body,
        app_engine=True,
    )


def _own_headers(headers: Any) -> dict[str, str]:
    return {
        name.lower(): value
        for name, value in headers
        if name.lower() not in COMPUTED and not name.lower().startswith(RESERVED)
    }


def _service_headers(prefix: str, queue: Any, dispatch: Dispatch, history: History) -> dict[str, str]:
    headers = {
        f"{prefix}QueueName": queue_id(queue.name),
        f"{prefix}TaskName": dispatch.entry.id,
        f"{prefix}TaskRetryCount": str(history.retries),
        f"{prefix}TaskExecutionCount": str(history.responses),
        f"{prefix}TaskETA": f"{dispatch.entry.eta // SECOND}.{dispatch.entry.eta % SECOND:06d}",
    }
    if history.previous_code:
        headers[f"{prefix}TaskPreviousResponse"] = str(history.previous_code)
    if history.previous_reason:
        headers[f"{prefix}TaskRetryReason"] = history.previous_reason
    return headers


def overridden_url(url: str, override: Any) -> str:
    """Return the URL with the queue's override; IF_NOT_EXISTS fills in only what the task's own URL lacks."""
    parts = urlsplit(url)
    always = override.uri_override_enforce_mode != IF_NOT_EXISTS
    scheme, host, port, path, query = parts.scheme, parts.hostname or "", parts.port, parts.path, parts.query
    if always and override.HasField("scheme"):
        scheme = "http" if override.scheme == HTTP_SCHEME else "https"
    if always and override.HasField("host"):
        host = override.host
    if override.HasField("port") and (always or port is None):
        port = override.port or None
    if override.HasField("path_override") and (always or path in ("", "/")):
        path = override.path_override.path
    if override.HasField("query_override") and (always or not query):
        query = override.query_override.query_params
    if path and not path.startswith("/"):
        path = f"/{path}"
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((scheme, host if port is None else f"{host}:{port}", path, query, ""))
