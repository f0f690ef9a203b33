"""What fails, by a seeded plan: of each call, of each message. faults.py does as it says.

`plan.fired` counts what happened, `plan.on_fired` is told at once.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from tally.errors import BackendError, Refused, Unavailable

CALLS = ("get", "commit", "query", "publish", "pull", "acknowledge", "extend")

# What may become of a call, as `call:fault`.
FATES = {
    "refused": "UNAVAILABLE at once, nothing applied",
    "failed-after": "applied, then UNAVAILABLE",
    "reply-lost": "applied, DEADLINE_EXCEEDED at the client's deadline",
    "request-lost": "not applied, DEADLINE_EXCEEDED at the client's deadline",
    "applied-late": "an error, and applied some time after it",
    "repeated": "applied twice by a retry below us, the second answer comes back",
    "slow": "applied and answered late",
    "aborted": "ABORTED, nothing applied",
    "aborted-after": "applied, then ABORTED",
}
# What else may be done: to a lookup's keys, a pull's answer, a message, an acknowledgement.
OTHERS = {
    "get:deferred": "some keys are to be asked for again",
    "get:torn": "read in two parts, and time passes between: a lookup is no snapshot",
    "pull:empty": "an empty answer at once",
    "message:copied": "delivered twice at once, same message id",
    "message:delayed": "not delivered for some time",
    "message:swapped": "delivered before older ones",
    "ack:forgotten": "acknowledged in time, and delivered again all the same",
    "ack:late-taken": "acknowledged late, and settled all the same",
}


class Fate(NamedTuple):
    """Seconds on the way there and back; `error` before (not applied) or after; `late`: applied after the error."""

    there: float
    back: float
    before: BackendError | None = None
    after: BackendError | None = None
    late: float | None = None
    times: int = 1


class Plan:
    """Decides by its random and its rates (fault → probability per occasion). `quiet` lets no more faults happen.

    `latency`, which may be changed, is the mean of one way in seconds; `deadline` the client's own; `lateness` the
    longest delay of what comes late.
    """

    def __init__(
        self,
        random: Random,
        rates: Mapping[str, float],
        *,
        latency: float = 0.01,
        deadline: float = 10.0,
        lateness: float = 20.0,
    ) -> None:
        unknown = rates.keys() - {f"{call}:{fate}" for call in CALLS for fate in FATES} - OTHERS.keys()
        if unknown:
            raise ValueError(f"unknown faults: {sorted(unknown)}")
        self.random = random
        self.fired: Counter[str] = Counter()
        self.on_fired: Callable[[str], None] | None = None
        self.quiet = False
        self._rates = rates
        self.latency = latency
        self._deadline = deadline
        self._longest = lateness
        self._fates = {call: [(fate, rates.get(f"{call}:{fate}", 0.0)) for fate in FATES] for call in CALLS}
        self._risks = {call: sum(rate for _, rate in fates) for call, fates in self._fates.items()}
        self._outages: dict[str, BackendError] = {}

    def strikes(self, fault: str) -> bool:
        """Say whether a fault happens on this occasion, and count it."""
        if self.quiet or self.random.random() >= self._rates.get(fault, 0.0):
            return False
        self._fire(fault)
        return True

    def _fire(self, fault: str) -> None:
        self.fired[fault] += 1
        if self.on_fired:
            self.on_fired(fault)

    def lateness(self) -> float:
        return self.random.random() * self._longest

    def break_down(self, call: str, error: BackendError | None) -> None:
        """Make every such call raise the error from now on; None mends it."""
        if error is None:
            self._outages.pop(call, None)
        else:
            self._outages[call] = error

    def fate(self, call: str) -> Fate:
        """Return what becomes of the next call of this kind."""
        there = back = self.latency * (0.5 + self.random.random())
        if self._outages and call in self._outages:
            return Fate(there, back, before=self._outages[call])
        if self.quiet:
            return Fate(there, back)
        dice = self.random.random()
        if dice >= self._risks[call]:
            return Fate(there, back)
        for name, rate in self._fates[call]:
            dice -= rate
            if dice < 0:
                self._fire(f"{call}:{name}")
                return self._fate(name, call, there, back)
        return Fate(there, back)

    def _fate(self, name: str, call: str, there: float, back: float) -> Fate:
        unavailable = Unavailable(f"{call} failed by plan", status="UNAVAILABLE")
        too_late = Unavailable(f"{call} timed out by plan", status="DEADLINE_EXCEEDED")
        aborted = Refused(f"{call} aborted by plan", status="ABORTED")
        match name:
            case "refused":
                return Fate(there, back, before=unavailable)
            case "failed-after":
                return Fate(there, back, after=unavailable)
            case "reply-lost":
                return Fate(there, self._deadline, after=too_late)
            case "request-lost":
                return Fate(self._deadline, back, before=too_late)
            case "applied-late":
                return Fate(there, back, before=self.random.choice((unavailable, too_late)), late=self.lateness())
            case "repeated":
                return Fate(there, back, times=2)
            case "aborted":
                return Fate(there, back, before=aborted)
            case "aborted-after":
                return Fate(there, back, after=aborted)
            case _:
                share = self.random.random() * self._deadline
                return Fate(there + share, back + self.random.random() * (self._deadline - share))
