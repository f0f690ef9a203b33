"""What befalls each process and the services in a round, and when: a pure function of the seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from tally.limits import ACK_DEADLINE_SECONDS

Deed = Literal["kill", "terminate", "freeze"]
# Only workers freeze so long: what they hold must pass to others, and they wake as zombies.
_PAST_DEADLINE = (ACK_DEADLINE_SECONDS + 1, ACK_DEADLINE_SECONDS + 3)
_SHORT = (0.3, 3.0)
_PAUSE = (0.5, 2.5)
_REPLACED_AFTER = 2.0  # about how long a new process takes to serve


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`at` and `seconds` (of a freeze or an outage) are seconds; `at` counts from the beginning of the round."""

    at: float
    deed: str
    seconds: float = 0.0


def of_process(random: Random, first: Deed, length: float, *, long: bool = False) -> list[Action]:
    """Plan one process's fate: `first`, then whatever comes. `long`: the first freeze outlasts the ack deadline."""
    actions: list[Action] = []
    at = random.uniform(*_PAUSE)
    deed = first
    while at < length:
        seconds = 0.0
        if deed == "freeze":
            seconds = random.uniform(*(_PAST_DEADLINE if long and not actions else _SHORT))
        actions.append(Action(at=at, deed=deed, seconds=seconds))
        at += (seconds or _REPLACED_AFTER) + random.uniform(*_PAUSE)
        deed = random.choices(("kill", "terminate", "freeze"), (3, 1, 2))[0]
    return actions


def of_services(random: Random, services: Sequence[str], length: float) -> list[Action]:
    """Plan one outage a service; the deed is the service's name."""
    return [
        Action(at=random.uniform(1, length - 2), deed=service, seconds=random.uniform(*_SHORT)) for service in services
    ]
