"""A clock that moves only when it is told to, in place of the machine's."""


class ManualClock:
    """Stands still until `set`; starts at a given instant."""

    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def set(self, now: int) -> None:
        """Move to an instant; going back is refused with ValueError."""
        if now < self._now:
            raise ValueError(f"the clock is at {self._now} µs and cannot go back to {now} µs")
        self._now = now
