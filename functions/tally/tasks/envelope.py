"""The envelope: a task as JSON, version 1, for the wire, the store and other languages.

    {"v":1, "name":"mail-7", "tag":"mail", "json":{"to":7}, "delay":60, "headers":{"traceparent":"…"},
     "retry":{"max_attempts":5}, "expires":"2030-01-01T00:00:00Z", "unique":{"period":3600,"key":"7"}}

The payload is one of `json` (any value), `text` or `base64`; none of them means no bytes. `content_type` defaults to
what that form implies. Every other field may be left out. `delay`, `dispatch_deadline` and `unique.period` are seconds,
`eta` is RFC 3339 with an offset, `expires` is either. Unknown fields and versions are refused. tests/vectors/tasks.json
holds examples with the payload bytes each must give.
"""

import binascii
from base64 import b64decode, b64encode
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tally.errors import InvalidInput
from tally.retry import RetryPolicy
from tally.tasks.task import BYTES, JSON, TEXT, Duration, Task, Unique

VERSION = 1
Instant = Annotated[datetime, Meta(tz=True)]


class UniqueEnvelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    period: float
    key: str | None = None


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The fields as they are written; `to_task` checks them as a `Task` does."""

    v: int
    json: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    content_type: str | None = None
    name: str | None = None
    tag: str | None = None
    delay: float | None = None
    eta: Instant | None = None
    expires: float | Instant | None = None
    retry: RetryPolicy | None = None
    dispatch_deadline: float | None = None
    headers: dict[str, str] = {}
    unique: UniqueEnvelope | None = None

    def to_task(self) -> Task:
        """Return the task; raise InvalidInput as `Task` does, or for a version or payload that is not one."""
        if self.v != VERSION:
            raise InvalidInput(f"envelope version {self.v}: this Tally reads version {VERSION}")
        payload, implied = self._payload()
        return Task(
            payload=payload,
            content_type=implied if self.content_type is None else self.content_type,
            name=self.name,
            tag=self.tag,
            delay=self.delay,
            eta=self.eta,
            expires=self.expires,
            retry=self.retry,
            dispatch_deadline=self.dispatch_deadline,
            headers=self.headers,
            unique=None if self.unique is None else Unique(period=self.unique.period, key=self.unique.key),
        )

    def _payload(self) -> tuple[bytes, str]:
        forms = [form for form in ("json", "text", "base64") if getattr(self, form) is not UNSET]
        if len(forms) > 1:
            raise InvalidInput(f"payload given as {' and '.join(forms)}: give one")
        if self.json is not UNSET:
            return bytes(self.json), JSON
        if self.text is not UNSET:
            return self.text.encode(), TEXT
        if self.base64 is UNSET:
            return b"", BYTES
        try:
            return b64decode(self.base64, validate=True), BYTES
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(f"base64 payload does not decode: {error}") from error


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Envelope).decode


def of(task: Task) -> Envelope:
    """Return the envelope of a task, its payload in the form that reads best and gives the same bytes back."""
    form, payload = _form(task)
    implied = {"json": JSON, "text": TEXT}.get(form, BYTES)
    fields: dict[str, Any] = {form: payload} if task.payload else {}
    return Envelope(
        v=VERSION,
        content_type=None if task.content_type == (implied if fields else BYTES) else task.content_type,
        name=task.name,
        tag=task.tag,
        delay=_seconds(task.delay),
        eta=task.eta,
        expires=task.expires if isinstance(task.expires, datetime) else _seconds(task.expires),
        retry=task.retry,
        dispatch_deadline=_seconds(task.dispatch_deadline),
        headers=dict(task.headers),
        unique=None if task.unique is None else _unique(task.unique),
        **fields,
    )


def encode(task: Task) -> bytes:
    """Return the task as JSON."""
    return _encode(of(task))


def decode(data: bytes) -> Task:
    """Read a task; raise InvalidInput when `data` is no envelope of a version that is known, or its task is wrong."""
    try:
        return _decode(data).to_task()
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"not a task envelope: {error}") from error


def _form(task: Task) -> tuple[str, object]:
    """Return the field that holds the payload, and its value."""
    if task.content_type == JSON and _is_json(task.payload):
        return "json", msgspec.Raw(task.payload)
    if task.content_type == TEXT:
        try:
            return "text", task.payload.decode()
        except UnicodeDecodeError:
            pass
    return "base64", b64encode(task.payload).decode()


def _is_json(payload: bytes) -> bool:
    """Tell whether the bytes can stand as they are in the envelope: one JSON value with no white space around it."""
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return payload == payload.strip()


def _unique(unique: Unique) -> UniqueEnvelope:
    return UniqueEnvelope(period=_seconds(unique.period) or 0.0, key=unique.key)


def _seconds(value: Duration | None) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value
