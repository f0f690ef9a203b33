"""What may travel as an argument, what may not, and that it is refused at the enqueue."""

import dataclasses
import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tally.errors import InvalidInput
from tally.tasks.codec import Codec, Undecodable


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Point3(Point):
    z: int = 0


class Order(msgspec.Struct):
    id: UUID
    at: datetime
    lines: list[Point]


ORDER = Order(id=UUID(int=5), at=datetime(2026, 1, 2, tzinfo=UTC), lines=[Point(1, 2)])


def typed(
    colour: Colour = Colour.RED,
    order: Order = ORDER,
    price: Decimal = Decimal("1.10"),
    data: bytes = b"",
    wait: timedelta = timedelta(0),
    numbers: Sequence[int] = (),
    ratio: float = 0.0,
    names: set[str] = frozenset(),  # type: ignore[assignment]  # a default that is never sent
    table: Mapping[str, Point] = {},
    maybe: int | None = None,
) -> None: ...


def positional(a: int, b: int = 2, /, *rest: int, c: int, **more: str) -> None: ...


def loose(value, other: Any = None): ...  # type: ignore[no-untyped-def]  # as users' functions may be


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (typed, (Colour.RED, ORDER, Decimal("0.10"), b"\x00\xff", timedelta(seconds=1.5)), {}),
        (typed, (), {"numbers": [1, 2], "ratio": 1, "names": {"a"}, "table": {"k": Point(3)}, "maybe": 2**70}),
        (positional, (1,), {"c": 3}),
        (positional, (1, 5, 6, 7), {"c": 3, "x": "1", "y": "2"}),
        (loose, ({"a": [1, None, True, "é"]}, 2.5), {}),
    ],
)
def test_arguments_arrive_as_they_were_sent(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    codec = Codec(function)
    arrived_args, arrived_kwargs = codec.decode(codec.encode(args, kwargs))
    sent = Codec(function)._signature.bind(*args, **kwargs)
    assert Codec(function)._signature.bind(*arrived_args, **arrived_kwargs).arguments == sent.arguments


def test_a_sequence_may_arrive_as_a_list() -> None:
    codec = Codec(typed)
    assert codec.decode(codec.encode((), {"numbers": (1, 2)})) == ((), {"numbers": [1, 2]})


@pytest.mark.parametrize(
    ("function", "args", "names"),
    [
        (loose, (lambda: None,), "'value'"),
        (loose, (sys.stdout,), "'value'"),
        (loose, (datetime(2026, 1, 2, tzinfo=UTC),), "'value'.*would arrive as str"),
        (loose, ({"at": [Decimal(1)]},), "'value'"),
        (loose, (1, float("nan")), "'other'"),
        (loose, ("\ud800",), "'value'"),
        (typed, ("red",), "'colour'"),
        (typed, (Colour.RED, None), "'order'"),
        (positional, ("1",), "missing a required"),
        (positional, (), "missing a required"),
    ],
)
def test_what_cannot_travel_is_refused_naming_the_argument(
    function: Callable[..., Any], args: tuple[Any, ...], names: str
) -> None:
    with pytest.raises(InvalidInput, match=names):
        Codec(function).encode(args, {})


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        ({"c": 1, "a": "1"}, "positional"),
        ({"names": [1]}, "'names'"),
        ({"ratio": True}, "'ratio'"),
        ({"table": {"k": Point3(1, 2, 3)}}, "'table'.*would arrive"),
        ({"maybe": 10**5000}, "'maybe'"),
    ],
)
def test_bad_keyword_arguments_are_refused(kwargs: dict[str, Any], names: str) -> None:
    function = positional if "c" in kwargs else typed
    with pytest.raises(InvalidInput, match=names):
        Codec(function).encode((), kwargs)


def test_deep_nesting_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidInput, match="'value'"):
        Codec(loose).encode((value,), {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"x":1}',
        b'{"colour":"green"}',
        b'{"maybe":"1"}',
        b"\x80\x04cposix\nsystem\n.",
        b"[" * 100_000,
    ],
)
def test_stored_arguments_that_do_not_fit_are_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable):
        Codec(typed).decode(data)


def test_a_hostile_pickle_makes_no_file(tmp_path: Path) -> None:
    import pickle

    target = tmp_path / "made"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (target,))

    with pytest.raises(Undecodable):
        Codec(loose).decode(pickle.dumps(Hostile()))
    assert not target.exists()


def test_a_type_that_cannot_travel_is_found_by_check() -> None:
    def bad(handle: int, value: datetime | str) -> None: ...

    with pytest.raises(InvalidInput, match="'value'"):
        Codec(bad).check()


def test_results_travel_by_the_return_annotation() -> None:
    def function() -> Point:
        return Point(1, 2)

    codec = Codec(function)
    assert codec.decode_result(codec.encode_result(Point(1, 2))) == Point(1, 2)
    with pytest.raises(InvalidInput, match="the result of"):
        codec.encode_result(object())
    with pytest.raises(Undecodable):
        codec.decode_result(b'{"x":"1"}')


def test_an_argument_that_does_not_fit_is_named() -> None:
    def resize(image: str, width: int) -> None: ...

    with pytest.raises(Undecodable, match="argument 'width': Expected `int`, got `str`"):
        Codec(resize).decode(b'{"image":"cat.png","width":"200"}')
