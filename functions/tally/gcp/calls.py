"""How long each remote call may take, and which are tried again: explicit for every one.

The libraries' own defaults retry for a minute, and restore the whole time limit for a last try; so each call also has
an outer limit. A commit is never repeated here: its caller reads what became of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.api_core import exceptions
from google.api_core.retry import AsyncRetry, if_exception_type

from tally.gcp.errors import FAILURES, translate

Method: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`seconds` bounds the call with all its retries; `retry` None means one try."""

    name: str
    seconds: float
    retry: AsyncRetry | None = None


def _retry(seconds: float, *errors: type[Exception]) -> AsyncRetry:
    return AsyncRetry(if_exception_type(*errors), initial=0.1, maximum=1.0, multiplier=2.0, timeout=seconds)


_READ: Final = _retry(4, exceptions.ServiceUnavailable)
# A publish that is repeated may be in twice: a ballot's copies count once.
_SEND: Final = _retry(
    6,
    exceptions.ServiceUnavailable,
    exceptions.InternalServerError,
    exceptions.Aborted,
    exceptions.Unknown,
    exceptions.ResourceExhausted,
)

LOOKUP: Final = Policy(name="lookup", seconds=10, retry=_READ)
QUERY: Final = Policy(name="query", seconds=20, retry=_READ)
COMMIT: Final = Policy(name="commit", seconds=20)
PUBLISH: Final = Policy(name="publish", seconds=8, retry=_SEND)  # the function must answer within 10 s
PULL: Final = Policy(name="pull", seconds=5)  # how long an idle subscription is waited for
ACKNOWLEDGE: Final = Policy(name="acknowledge", seconds=5)
EXTEND: Final = Policy(name="extend", seconds=5)
ADMIN: Final = Policy(name="admin", seconds=10, retry=_READ)


async def call(policy: Policy, method: Method, request: object) -> Any:
    """Make one call of a generated client within its policy; raise only the ports' errors."""
    try:
        async with asyncio.timeout(policy.seconds):
            return await method(request=request, retry=policy.retry, timeout=policy.seconds)
    except FAILURES as error:
        raise translate(policy.name, error) from error
