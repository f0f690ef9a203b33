"""A queue's numbers, as App Engine's QueueStatistics named them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """`tasks` that wait or run, `oldest_eta` (µs) of them, None in an empty queue; `dead` letters beside them.

    `enforced_rate` is tasks a second, None where nothing limits it. Counting stops at a limit:
    `truncated` then says that the counts are "at least".
    """

    tasks: int
    oldest_eta: int | None
    executed_last_minute: int
    in_flight: int
    enforced_rate: float | None = None
    dead: int = 0
    paused: bool = False
    truncated: bool = False
