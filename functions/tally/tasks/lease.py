"""A lease: a task that one worker holds until an instant, by a token. Finishing presents it."""

from dataclasses import dataclass, field

from tally.tasks.row import Row
from tally.tasks.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """`expires_at` in µs; from then on it finishes nothing. `attempt` counts the leases of the task, from 1.

    Extending gives a new one; the old one still works until its own end.
    """

    task: Task
    token: str
    expires_at: int
    row: Row = field(repr=False)

    @property
    def queue(self) -> str:
        return self.row.queue

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def attempt(self) -> int:
        return self.row.attempts

    @property
    def last_error(self) -> str | None:
        """Return what the last attempt that failed was given as its error."""
        return self.row.error or None
