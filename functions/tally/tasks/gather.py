"""Gather: items that belong together are handed to their function as one list.

    @task("digest.send", gather=Gather(max_size=100, max_delay=600, grace=30))
    async def send_digest(reader: str, lines: list[str]) -> None: ...

    await send_digest.gather("reader-7", "a new comment")

Each item waits as a task of a pull queue of the function's own, its group as the tag. Pure; gatherer.py does it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput, TooLarge
from tally.retry import UNLIMITED, RetryPolicy
from tally.tasks.call import VERSION, Call, digest, encode
from tally.tasks.row import Row
from tally.tasks.task import JSON, Duration, Task, seconds

_PATIENT = RetryPolicy(max_attempts=UNLIMITED)  # an item waits as long as it must
_NO_NAME = re.compile(r"[^A-Za-z0-9-]+")
_CHECKS = 4  # looks at the groups in the shortest of their times
_CHECK_MIN, _CHECK_MAX = 0.25, 5.0  # seconds between looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """A group is handed over at `max_size` items, when its first has waited `max_delay`, or none came for `grace`."""

    max_size: int = 100
    max_delay: Duration = 600.0
    grace: Duration = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_size <= limits.GATHERED_ITEMS:
            raise InvalidInput(f"max_size is {self.max_size}: want 1 to {limits.GATHERED_ITEMS}")
        seconds("max_delay", self.max_delay)
        seconds("grace", self.grace)

    @property
    def check(self) -> float:
        """Return the seconds between looks at the groups; a group is handed over that much late at most."""
        shortest = min(seconds("max_delay", self.max_delay), seconds("grace", self.grace))
        return min(_CHECK_MAX, max(_CHECK_MIN, shortest / _CHECKS))

    def is_full(self, size: int) -> bool:
        return size >= self.max_size

    def is_due(self, *, oldest: int, newest: int, now: int) -> bool:
        """Say whether a group is due by its time; `oldest` and `newest` (µs) are when its items came."""
        waited = now - oldest >= round(seconds("max_delay", self.max_delay) * SECOND)
        return waited or now - newest >= round(seconds("grace", self.grace) * SECOND)


def queue_name(function: str) -> str:
    """Return the pull queue in which the items for a function wait."""
    return f"gather-{_NO_NAME.sub('-', function)[:60]}-{digest(function)[:8]}"


def item(arguments: bytes, group: str, name: str | None) -> Task:
    """Return the task of an item; `arguments` are those of a call with it alone. Raises InvalidInput, TooLarge."""
    _, items = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw]).values()
    (data,) = msgspec.json.decode(items, type=list[msgspec.Raw])
    if len(data) > limits.GATHERED_BYTES:
        raise TooLarge(f"item of {len(data)} bytes: the limit is {limits.GATHERED_BYTES}")
    return Task(payload=bytes(data), content_type=JSON, tag=group, name=name, retry=_PATIENT)


def fitting(rows: Sequence[Row]) -> int:
    """Return how many of the items, in order, one call holds: one in any case."""
    size = count = 0
    for row in rows:
        size += row.size + 1
        if count and size > limits.GATHERED_BYTES:
            break
        count += 1
    return count


def call(function: str, parameters: tuple[str, ...], group: str, items: Sequence[bytes], keep: float | None) -> Task:
    """Return the call of a function with the items of a group, in order."""
    of_group, of_items = parameters
    lines = [msgspec.Raw(data) for data in items]
    arguments = msgspec.json.encode({of_group: group, of_items: lines})
    return Task(
        payload=encode(Call(v=VERSION, call=function, arguments=msgspec.Raw(arguments), keep=keep)), content_type=JSON
    )


def check(parameters: tuple[str, ...]) -> None:
    """Raise InvalidInput unless a function takes a group and a list of its items."""
    if len(parameters) != 2:
        raise InvalidInput(f"a function that gathers takes two arguments, the group and the items, not {parameters}")
