"""Which errors of a function are retried, and which of those count as attempts: by exception types or a predicate."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tally.logs import event

# Exception types, or a function that tells whether an error is meant.
Errors: TypeAlias = tuple[type[BaseException], ...] | Callable[[BaseException], bool]
Weight: TypeAlias = Literal["fatal", "counts", "free"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """`fatal` errors are not retried, nor are any but those of `retry_for`; `fatal` is the stronger.

    `uncounted` ones are retried without using up an attempt: it is not the task that failed, but what it needs.
    """

    fatal: Errors = ()
    retry_for: Errors = (BaseException,)
    uncounted: Errors = ()

    def weigh(self, error: BaseException) -> Weight:
        """Say what an error means. A predicate that itself fails changes nothing: the error is retried and counts."""
        if _meant(self.fatal, error, otherwise=False) or not _meant(self.retry_for, error, otherwise=True):
            return "fatal"
        return "free" if _meant(self.uncounted, error, otherwise=False) else "counts"


def _meant(errors: Errors, error: BaseException, *, otherwise: bool) -> bool:
    if isinstance(errors, tuple):
        return isinstance(error, errors)
    try:
        return bool(errors(error))
    except Exception as problem:
        event("predicate-failed", level=logging.ERROR, error=problem)
        return otherwise
