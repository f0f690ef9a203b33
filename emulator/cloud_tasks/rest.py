"""The same methods over HTTP and JSON, by the API's own bindings (google.api.http), at /v2/…"""

import json
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from google.protobuf import json_format

from emulator.cloud_tasks.api import CloudTasks
from emulator.cloud_tasks.errors import ApiError, invalid
from emulator.cloud_tasks.rpc import MESSAGE_BYTES, RPCS, Rpc

PREFIX = "/v2/"
# Parameters that every Google API takes; none changes what is answered here.
SYSTEM = {
    "alt",
    "access_token",
    "callback",
    "fields",
    "key",
    "oauth_token",
    "prettyPrint",
    "quotaUser",
    "uploadType",
    "upload_protocol",
}
BODY_BYTES = MESSAGE_BYTES


class Rest:
    """Finds the RPC of a request by verb and path; `web.Request` in, `web.Response` out."""

    def __init__(self, api: CloudTasks) -> None:
        self._api = api
        self._routes = [(rpc, *_compile(rpc.path)) for rpc in RPCS]

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix(PREFIX)
        try:
            rpc, bound = self._find(request.method, path)
            message = build(rpc, bound, request.query.items(), await request.read())
            answer = getattr(self._api, rpc.method)(message)
        except ApiError as error:
            return _error(error.http, error.code.name, error.message)
        except web.HTTPRequestEntityTooLarge:
            return _error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "INVALID_ARGUMENT", f"The body is over {BODY_BYTES} bytes"
            )
        except LookupError:
            return _error(HTTPStatus.NOT_FOUND, "NOT_FOUND", f"No method {request.method} {request.path}")
        return web.Response(text=json_format.MessageToJson(answer, indent=2), content_type="application/json")

    def _find(self, verb: str, path: str) -> tuple[Rpc, tuple[str, str]]:
        for rpc, field, pattern in self._routes:
            match = pattern.fullmatch(path)
            if match and rpc.verb == verb:
                return rpc, (field, match[1])
        raise LookupError(path)


def build(rpc: Rpc, bound: tuple[str, str], query: Iterable[tuple[str, str]], body: bytes) -> Any:
    """Return the request message of an HTTP request. Raises ApiError INVALID_ARGUMENT."""
    fields: dict[str, Any] = {}
    if rpc.body and body:
        try:
            content = json.loads(body)
        except ValueError as error:
            raise invalid(f"The body is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise invalid("The body must be a JSON object")
        fields = content if rpc.body == "*" else {rpc.body: content}
    for name, value in query:
        if name not in SYSTEM and not name.startswith("$"):
            _put(fields, name, value)
    _put(fields, *bound)
    message = rpc.request()
    try:
        json_format.ParseDict(fields, message)
    except json_format.ParseError as error:
        raise invalid(f"Invalid JSON payload received. {error}") from error
    return message


def _put(fields: dict[str, Any], path: str, value: str) -> None:
    """Set a dotted path, in place of the same one spelled in camel case."""
    *parents, leaf = path.split(".")
    for name in parents:
        child = fields.setdefault(name, fields.pop(_camel(name), {}))
        if not isinstance(child, dict):
            raise invalid(f"{path} is set twice")
        fields = child
    fields.pop(_camel(leaf), None)
    fields[leaf] = value


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)


def _compile(path: str) -> tuple[str, re.Pattern[str]]:
    """Return the field that a path binds and the path's pattern with that field as its group."""
    match = re.fullmatch(r"(.*)\{([\w.]+)=([^}]+)\}(.*)", path)
    assert match, path
    before, field, resource, after = match.groups()
    return field, re.compile(
        f"{re.escape(before)}({re.escape(resource).replace(re.escape('*'), '[^/]+?')}){re.escape(after)}"
    )


def _error(status: HTTPStatus, name: str, message: str) -> web.Response:
    body = {"error": {"code": int(status), "message": message, "status": name}}
    return web.json_response(body, status=int(status))
