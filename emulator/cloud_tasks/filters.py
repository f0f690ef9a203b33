"""The filter of ListQueues: comparisons of Queue fields joined by AND, a part of the Logging query language."""

import re
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from emulator.cloud_tasks.errors import invalid

CLAUSE = re.compile(r'\s*([A-Za-z_][\w.]*)\s*(<=|>=|!=|=|<|>|:)\s*("[^"]*"|[^\s"]+)\s*')


def matches(queue: Any, text: str) -> bool:
    """Tell whether a queue passes a filter; the empty one passes all. Raises ApiError INVALID_ARGUMENT."""
    return all(_holds(queue, *clause) for clause in _clauses(text))


def _clauses(text: str) -> list[tuple[str, str, str]]:
    if not text.strip():
        return []
    found = []
    for part in re.split(r"\sAND\s", text):
        match = CLAUSE.fullmatch(part)
        if not match:
            raise invalid(f"filter {text!r}: want FIELD OPERATOR VALUE, joined by AND")
        found.append((match[1], match[2], match[3].strip('"')))
    return found


def _holds(queue: Any, path: str, op: str, wanted: str) -> bool:
    value: Any = queue
    for name in path.split("."):
        name = re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), name)
        field = value.DESCRIPTOR.fields_by_name.get(name) if isinstance(value, Message) else None
        if field is None:
            raise invalid(f"filter names a field that a Queue does not have: {path!r}")
        value = getattr(value, name)
        if field.type == FieldDescriptor.TYPE_ENUM and field.enum_type is not None:
            value = field.enum_type.values_by_number[value].name
    if isinstance(value, int | float):
        try:
            return _compare(float(value), op, float(wanted))
        except ValueError:
            raise invalid(f"filter compares the number {path!r} with {wanted!r}") from None
    return wanted in str(value) if op == ":" else _compare(str(value), op, wanted)


def _compare(value: Any, op: str, wanted: Any) -> bool:
    answers = {
        "=": value == wanted,
        ":": value == wanted,
        "!=": value != wanted,
        "<": value < wanted,
        "<=": value <= wanted,
        ">": value > wanted,
        ">=": value >= wanted,
    }
    return bool(answers[op])
