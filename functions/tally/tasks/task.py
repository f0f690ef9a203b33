"""A task: a payload with its name, tag, time and policy, checked when made. What every queue takes.

Nothing here reads the clock: `due` and `ends` are given the instant of the enqueue. How a task is written for other
languages is in envelope.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from math import isfinite
from typing import Any, TypeAlias, TypedDict, Unpack
from urllib.parse import parse_qs, urlencode

import msgspec

from tally import limits
from tally.clock import SECOND, from_datetime, to_datetime
from tally.errors import InvalidInput, TooLarge
from tally.retry import RetryPolicy

Duration: TypeAlias = float | timedelta
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
FORM = "application/x-www-form-urlencoded"
BYTES = "application/octet-stream"
TRACE_HEADER = "traceparent"
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.TASK_NAME}}}")
_QUEUE = re.compile(rf"[A-Za-z0-9-]{{1,{limits.QUEUE_NAME}}}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110, section 5.6.2
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """At most one task at a time, and one in `period` (from its enqueue), with this key; None: with this payload."""

    period: Duration
    key: str | None = None

    def __post_init__(self) -> None:
        seconds("unique.period", self.period, at_least=1)
        if self.key is not None:
            _text("unique.key", self.key, limits.TASK_NAME)


class Options(TypedDict, total=False):
    """What a task has beside its payload, as keyword arguments; `Task` says what each means."""

    name: str | None
    tag: str | None
    delay: Duration | None
    eta: datetime | None
    expires: Duration | datetime | None
    retry: RetryPolicy | None
    dispatch_deadline: Duration | None
    headers: Mapping[str, str]
    unique: Unique | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of work. Durations are seconds or timedelta, instants aware datetimes; a wrong value is InvalidInput.

    `name`: a second task of that name is refused while the first lives and for a while after (its tombstone).
    `tag` groups tasks for leasing. `delay` from the enqueue, or `eta`, or neither: at once. `expires`: from then on the
    task is a dead letter rather than run. `retry`: None takes the queue's. `dispatch_deadline`: how long a push handler
    may run; None takes the queue's. `headers` travel with the task, the trace context among them.
    """

    payload: bytes = field(default=b"", repr=False)
    content_type: str = BYTES
    name: str | None = None
    tag: str | None = None
    delay: Duration | None = None
    eta: datetime | None = None
    expires: Duration | datetime | None = None
    retry: RetryPolicy | None = None
    dispatch_deadline: Duration | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    unique: Unique | None = None

    @classmethod
    def json(cls, value: object, **options: Unpack[Options]) -> "Task":
        """Make a task whose payload is `value` as JSON."""
        try:
            payload = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"payload of {type(value).__name__} cannot be written as JSON: {error}") from error
        return cls(payload=payload, content_type=JSON, **options)

    @classmethod
    def text(cls, value: str, **options: Unpack[Options]) -> "Task":
        """Make a task whose payload is `value` in UTF-8."""
        try:
            payload = value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"payload is not valid text: {error}") from error
        return cls(payload=payload, content_type=TEXT, **options)

    @classmethod
    def form(cls, params: Mapping[str, str | Sequence[str]], **options: Unpack[Options]) -> "Task":
        """Make a task whose payload is an HTML form; a sequence gives a parameter several values."""
        try:
            payload = urlencode(params, doseq=True, errors="strict").encode()
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidInput(f"params cannot be written as a form: {error}") from error
        return cls(payload=payload, content_type=FORM, **options)

    def __post_init__(self) -> None:
        if not isinstance(self.payload, bytes):
            raise InvalidInput(f"payload is {type(self.payload).__name__}: want bytes, or Task.json, or Task.text")
        if len(self.payload) > limits.TASK_BYTES:
            raise TooLarge(f"payload of {len(self.payload)} bytes: the limit is {limits.TASK_BYTES}")
        if self.name is not None:
            check_name(self.name)
        if self.tag is not None:
            check_tag(self.tag)
        if self.delay is not None and self.eta is not None:
            raise InvalidInput(f"delay {self.delay} and eta {self.eta}: give one or the other")
        if self.delay is not None:
            seconds("delay", self.delay)
        if self.eta is not None:
            _aware("eta", self.eta)
        if isinstance(self.expires, datetime):
            _aware("expires", self.expires)
        elif self.expires is not None:
            seconds("expires", self.expires)
        if self.dispatch_deadline is not None:
            seconds(
                "dispatch_deadline",
                self.dispatch_deadline,
                at_least=limits.DISPATCH_SECONDS_MIN,
                at_most=limits.DISPATCH_SECONDS,
            )
        if self.unique is not None and self.name is not None:
            raise InvalidInput(f"name {self.name!r} and unique: give one or the other, unique makes the name")
        _check_headers(self.content_type, self.headers)

    def due(self, now: int) -> int:
        """Return the instant (µs) from which the task may run, if it is enqueued at `now`."""
        if self.eta is not None:
            return max(0, from_datetime(self.eta))
        return now + round(seconds("delay", self.delay) * SECOND) if self.delay is not None else now

    def ends(self, now: int) -> int | None:
        """Return the instant (µs) at which the task expires, if it is enqueued at `now`; None: never."""
        if isinstance(self.expires, datetime):
            return max(0, from_datetime(self.expires))
        return now + round(seconds("expires", self.expires) * SECOND) if self.expires is not None else None

    def at(self, now: int) -> "Task":
        """Return the task with its delay and lifetime as instants, as it is stored."""
        ends = self.ends(now)
        return replace(
            self, delay=None, eta=to_datetime(self.due(now)), expires=None if ends is None else to_datetime(ends)
        )

    def value(self) -> Any:
        """Return the payload as it was given: decoded JSON, text, a form or bytes, by the content type.

        A parameter of a form is a list where it has several values. Raises InvalidInput when the payload is not what
        its content type says.
        """
        try:
            if self.content_type.split(";")[0].strip().lower() == JSON:
                return msgspec.json.decode(self.payload)
            if self.content_type == FORM:
                return _params(self.payload.decode("ascii"))
            return self.payload.decode() if self.content_type == TEXT else self.payload
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"payload is not {self.content_type}: {error}") from error

    def identity(self, queue: str) -> str | None:
        """Return the name that guards the task in `queue`: its own, or the one that `unique` makes; None: it has none.

        The made name is `unique-` and BLAKE2b-128 (hex) over the queue's name, `key` or `payload`, and
        that itself, joined by NULs.
        """
        if self.unique is None:
            return self.name
        own = self.payload if self.unique.key is None else self.unique.key.encode()
        kind = b"payload" if self.unique.key is None else b"key"
        return "unique-" + blake2b(b"\0".join((queue.encode(), kind, own)), digest_size=16).hexdigest()


def check_name(name: str) -> str:
    """Return a task's name, or raise InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"task name {_shown(name)}: want 1 to {limits.TASK_NAME} of A-Z a-z 0-9 _ -")
    return name


def check_tag(tag: str) -> str:
    """Return a task's tag, or raise InvalidInput."""
    _text("tag", tag, limits.TAG_BYTES)
    return tag


def check_queue(name: str) -> str:
    """Return a queue's name, or raise InvalidInput."""
    if not _QUEUE.fullmatch(name):
        raise InvalidInput(f"queue name {_shown(name)}: want 1 to {limits.QUEUE_NAME} of A-Z a-z 0-9 -")
    return name


def seconds(what: str, value: Duration | None, *, at_least: float = 0, at_most: float = limits.DELAY_SECONDS) -> float:
    """Return a duration in seconds, or raise InvalidInput naming `what`; None is 0."""
    number = value.total_seconds() if isinstance(value, timedelta) else (value or 0)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidInput(f"{what} is {_shown(value)}: want seconds or a timedelta")
    if not isfinite(number) or not at_least <= number <= at_most:
        raise InvalidInput(f"{what} is {number} s: want {at_least} to {at_most}")
    return float(number)


def _params(form: str) -> dict[str, str | list[str]]:
    values = parse_qs(form, keep_blank_values=True, strict_parsing=bool(form), errors="strict")
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def _aware(what: str, value: object) -> None:
    if not isinstance(value, datetime):
        raise InvalidInput(f"{what} is {_shown(value)}: want a datetime with a time zone")
    if value.utcoffset() is None:
        raise InvalidInput(f"{what} {value.isoformat()} has no time zone: give an aware datetime")


def _text(what: str, value: str, at_most: int) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} {_shown(value)} is not valid text: {error.reason}") from error
    if not 1 <= size <= at_most:
        raise InvalidInput(f"{what} of {size} bytes: want 1 to {at_most}")
    if _CONTROL.search(value):
        raise InvalidInput(f"{what} {_shown(value)} holds a control character")


def _check_headers(content_type: str, headers: Mapping[str, str]) -> None:
    size = len(content_type)
    for name, value in {"content-type": content_type, **headers}.items():
        if not _HEADER.fullmatch(name):
            raise InvalidInput(f"header name {_shown(name)} is not a token")
        if not value.isascii() or _CONTROL.search(value):
            raise InvalidInput(f"header {name}: {_shown(value)} is not printable ASCII")
        size += len(name) + len(value)
    if size > limits.HEADER_BYTES:
        raise TooLarge(f"headers of {size} bytes: the limit is {limits.HEADER_BYTES}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
