"""A request's body: JSON, within a size that is checked before it is read and while it is.

Strict where parsers are lax: NaN, duplicate names, deep nesting, bad UTF-8 and lone surrogates are the caller's error.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from starlette.types import Receive

from tally.errors import InvalidInput, TooLarge, UnsupportedMedia
from tally.limits import JSON_DEPTH

T = TypeVar("T")
RawHeaders = list[tuple[bytes, bytes]]
_LENGTH_DIGITS = 20  # as many as 64 bits take; servers let zeros before them through, in any number


async def read(headers: RawHeaders, receive: Receive, most: int) -> bytes:
    """Return the body; raise UnsupportedMedia unless it is said to be JSON, TooLarge as soon as it is over `most`."""
    _check_headers(headers, most)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        _check_size(body, most)
        return body
    whole = bytearray(body)
    while message.get("more_body", False):
        _check_size(whole, most)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("the body ended early", code="bad-body")
        whole += message.get("body", b"")
    _check_size(whole, most)
    return bytes(whole)


def decode(decoder: "msgspec.json.Decoder[T]", body: bytes, names: Callable[[T], int] | None = None) -> T:
    """Decode by a type that forbids unknown fields; raise InvalidInput naming the field.

    `names` says how many names a value is made from. A body without more colons than that names no field twice, which
    spares the hot path the second parse that alone finds out.
    """
    try:
        value = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        words = f"{error}{_choices(decoder.type, str(error))}"
        raise InvalidInput(f"the body is not what is wanted here: {words}", code="bad-json") from error
    if names is None or body.count(b":") != names(value):
        parse(body)
    return value


def parse(body: bytes) -> Any:
    """Parse any JSON by the strict rules; raise InvalidInput. For values that no type describes, and for doubt."""
    try:
        value = json.loads(
            body.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse, parse_float=_finite
        )
        _check_depth(value)
        json.dumps(value, ensure_ascii=False).encode()
    except InvalidInput:
        raise
    except UnicodeEncodeError:
        raise InvalidInput("the body holds a lone surrogate", code="bad-json") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}", code="bad-json") from error
    return value


def _choices(kind: Any, error: str) -> str:
    """Return the values that a field may have, where the decoder says no more than that it has another."""
    found = re.match(r"Invalid enum value .* at `\$\.(\w+)`$", error)
    if found is None or not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return ""
    for field in msgspec.structs.fields(kind):
        if field.encode_name == found[1]:
            values = [value for part in (field.type, *get_args(field.type)) for value in _literals(part)]
            return f": want {' or '.join(map(repr, values))}"
    return ""


def _literals(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _check_headers(headers: RawHeaders, most: int) -> None:
    content_type = b""
    for name, value in headers:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length":
            if not value.isdigit() or len(value) > _LENGTH_DIGITS:
                raise InvalidInput("Content-Length is no number", code="bad-header")
            if int(value) > most:
                raise TooLarge(f"the body has {int(value)} bytes: want at most {most}", code="body-too-large")
        elif name == b"content-encoding" and value.lower() != b"identity":
            raise UnsupportedMedia("the body is encoded: send it plain")
    if content_type != b"application/json":
        _check_type(content_type)


def _check_type(content_type: bytes) -> None:
    kind, *parameters = [part.strip().lower() for part in content_type.split(b";")]
    charsets = {part.partition(b"=")[2].strip(b'"') for part in parameters if part.startswith(b"charset=")}
    if kind != b"application/json" or charsets - {b"utf-8"}:
        raise UnsupportedMedia("Content-Type must be application/json, in UTF-8")


def _check_size(body: bytes | bytearray, most: int) -> None:
    if len(body) > most:
        raise TooLarge(f"the body is over {most} bytes", code="body-too-large")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidInput("the body names a field twice", code="bad-json")
    return value


def _refuse(constant: str) -> Any:
    raise InvalidInput(f"the body holds {constant}, which is not JSON", code="bad-json")


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise InvalidInput("the body holds a number out of range", code="bad-json")
    return value


def _check_depth(value: Any) -> None:
    """Refuse objects and arrays that nest deeper than JSON_DEPTH."""
    nested, depth = [item for item in [value] if isinstance(item, dict | list)], 0
    while nested:
        depth += 1
        if depth > JSON_DEPTH:
            raise InvalidInput(f"the body nests deeper than {JSON_DEPTH} levels", code="bad-json")
        inner = (member for item in nested for member in (item.values() if isinstance(item, dict) else item))
        nested = [member for member in inner if isinstance(member, dict | list)]
