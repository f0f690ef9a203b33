"""What became of one task of a bulk call, one a task, in order."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["added", "exists", "tombstoned", "invalid", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`exists`: a task of that name is in the queue; `tombstoned`: one was, and its name is still taken; `unknown`: the
    store did not answer, the task may be in (adding it again by its name is safe). `error` says why, for people.
    """

    status: Status
    name: str | None = None
    error: str | None = None
