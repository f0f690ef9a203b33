"""A function's arguments and result as JSON, by its annotations. Checked at the enqueue, so that bad ones fail there.

What msgspec knows can travel: dataclass, Struct, TypedDict, enum, datetime, timedelta, Decimal, UUID, bytes and
containers of them; without an annotation only what JSON has itself. Every argument is decoded again before it is sent:
what would arrive as something else is refused. Nothing is ever unpickled.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, get_type_hints

import msgspec

from tally.errors import InvalidInput

_FAILURES = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
_SEQUENCES = (list, tuple)
_SETS = (set, frozenset)


class Undecodable(InvalidInput):
    """Stored arguments do not fit the function (any more)."""

    code = "undecodable"


class Codec:
    """How the calls of one function are written."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        try:
            self._signature = inspect.signature(function)
        except ValueError as error:
            raise InvalidInput(f"{function!r} cannot be a task: {error}") from error

    @cached_property
    def _decoders(self) -> dict[str, "msgspec.json.Decoder[Any]"]:
        """One decoder a parameter, and one for the result as `return`; made at first use, when all names are known."""
        hints = get_type_hints(self._function, include_extras=True)
        names = [*self._signature.parameters, "return"]
        return {name: self._decoder(name, hints.get(name, Any)) for name in names}

    def check(self) -> None:
        """Raise InvalidInput when an annotation cannot travel."""
        _ = self._decoders

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the arguments as a JSON object by parameter name. Raises InvalidInput naming the argument."""
        try:
            bound = self._bind(args, kwargs)
        except TypeError as error:
            raise InvalidInput(f"{self._name}{self._signature}: {error}", code="bad-arguments") from error
        fields = {name: self._encode(name, value) for name, value in bound.arguments.items()}
        return msgspec.json.encode(fields)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        bound = self._signature.bind(*args, **kwargs)
        for name, parameter in self._signature.parameters.items():
            # Python 3.13.0 lets a positional-only argument be missing when its name is among the free keywords.
            variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            if name not in bound.arguments and parameter.default is inspect.Parameter.empty and not variable:
                raise TypeError(f"missing a required positional argument: {name!r}")
        return bound

    def decode(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs) to call with. Raises Undecodable."""
        try:
            raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            bound = self._signature.bind_partial()
            bound.arguments.update({name: self._read(name, raw[name]) for name in self._known(raw)})
            self._bind(bound.args, bound.kwargs)
        except _FAILURES as error:
            raise Undecodable(f"arguments do not fit {self._name}{self._signature}: {error}") from error
        return bound.args, bound.kwargs

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter name."""
        return self._signature.bind(*args, **kwargs).arguments

    def complete(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter name, with the defaults of those that were not given."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self._signature.parameters)

    def encode_result(self, value: Any) -> bytes:
        """Return a result as JSON. Raises InvalidInput."""
        return bytes(self._encode("return", value))

    def decode_result(self, data: bytes) -> Any:
        """Return a stored result as the annotated type. Raises Undecodable."""
        try:
            return self._decoders["return"].decode(data)
        except _FAILURES as error:
            raise Undecodable(f"the result does not fit {self._name}: {error}") from error

    @property
    def _name(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def _decoder(self, name: str, annotation: Any) -> "msgspec.json.Decoder[Any]":
        kind = self._signature.parameters[name].kind if name != "return" else None
        if kind is inspect.Parameter.VAR_POSITIONAL:
            annotation = list[annotation]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            annotation = dict[str, annotation]
        try:
            return msgspec.json.Decoder(annotation)
        except TypeError as error:
            raise InvalidInput(f"{self._what(name)}: type {annotation} cannot travel: {error}") from error

    def _encode(self, name: str, value: Any) -> msgspec.Raw:
        """Encode one value, and decode it again to see that it arrives as it is."""
        decoder = self._decoders[name]
        try:
            data = msgspec.json.encode(value)
            arrived = decoder.decode(data)
        except _FAILURES as error:
            raise InvalidInput(
                f"{self._what(name)} of type {type(value).__name__} cannot be encoded: {error}", code="not-encodable"
            ) from error
        if not _same(value, arrived):
            raise InvalidInput(
                f"{self._what(name)} of type {type(value).__name__} would arrive as {type(arrived).__name__}:"
                " annotate the parameter with the type it takes",
                code="not-encodable",
            )
        return msgspec.Raw(data)

    def _read(self, name: str, raw: msgspec.Raw) -> Any:
        try:
            value = self._decoders[name].decode(raw)
        except _FAILURES as error:
            raise ValueError(f"argument {name!r}: {error}") from error
        kind = self._signature.parameters[name].kind
        return tuple(value) if kind is inspect.Parameter.VAR_POSITIONAL else value

    def _known(self, raw: Mapping[str, msgspec.Raw]) -> list[str]:
        unknown = raw.keys() - self._signature.parameters.keys()
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}")
        return [name for name in self._signature.parameters if name in raw]

    def _what(self, name: str) -> str:
        return f"the result of {self._name}" if name == "return" else f"argument {name!r} of {self._name}"


def _same(sent: Any, arrived: Any) -> bool:
    """Tell whether a value survived the journey; list and tuple count as one kind, so do the two sets."""
    for kind in (_SEQUENCES, _SETS):
        if isinstance(sent, kind) and isinstance(arrived, kind) and len(sent) == len(arrived):
            return sent == arrived or (kind is _SEQUENCES and all(map(_same, sent, arrived)))
    if isinstance(sent, Mapping) and isinstance(arrived, Mapping):
        return sent.keys() == arrived.keys() and all(_same(value, arrived[key]) for key, value in sent.items())
    if sent == arrived:
        return True
    return type(sent) is type(arrived) and bool(msgspec.json.encode(sent) == msgspec.json.encode(arrived))
