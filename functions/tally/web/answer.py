"""HTTP answers: JSON, and RFC 9457 problem documents. The only place that knows which error has which status."""

from http import HTTPStatus
from math import ceil

import msgspec
from starlette.types import Receive, Scope, Send

from tally import errors

Headers = tuple[tuple[bytes, bytes], ...]
_encode = msgspec.json.Encoder().encode
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", b"application/problem+json")
# The first class that an error is of gives its status.
_STATUSES = (
    (errors.TooLarge, 413),
    (errors.UnsupportedMedia, 415),
    (errors.InvalidInput, 400),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.VoteRefused, 409),
    (errors.Forbidden, 403),
    (errors.Busy, 503),
    (errors.Unavailable, 503),
    (errors.Refused, 503),
)


class Answer:
    """A whole answer, and the ASGI application that sends it."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: Headers = ()) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body))] if self.status >= 200 else []
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json(status: int, value: object, headers: Headers = ()) -> Answer:
    """Answer with a value that msgspec encodes."""
    return Answer(status, _encode(value), (_JSON, *headers))


def raw_json(status: int, body: bytes) -> Answer:
    """Answer with JSON that is encoded already."""
    return Answer(status, body, (_JSON,))


def problem(status: int, code: str, detail: str, headers: Headers = ()) -> Answer:
    """Answer with a problem document; `code` is stable, `detail` is for people."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    return Answer(status, _encode(document), (_PROBLEM, *headers))


def status_of(error: errors.TallyError) -> int:
    """Return an error's HTTP status; 500 for one that is no caller's fault and that no repetition mends."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def from_error(error: errors.TallyError) -> Answer:
    """Answer with the problem document of an error. A 503 names the seconds after which to try again."""
    status = status_of(error)
    if status == 500:
        return problem(status, "internal", "the server is at fault, or set up wrongly; its log says more")
    if status != 503:
        return problem(status, error.code, error.message)
    retry_after = ceil(error.retry_after) if isinstance(error, errors.Busy) else 2
    detail = error.message if isinstance(error, errors.Busy) else "the store or the message service does not answer"
    return problem(status, error.code, detail, ((b"retry-after", b"%d" % retry_after),))
