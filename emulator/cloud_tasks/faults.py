"""The fault plan: what goes wrong, how often, where. Set over `POST /faults`, for tests of what calls Cloud Tasks.

Kinds:
    refuse-create        CreateTask answers UNAVAILABLE and creates nothing
    lose-create-reply    CreateTask creates the task and answers UNAVAILABLE
    duplicate-dispatch   an attempt's request is sent twice
    late-dispatch        an attempt's request is sent `seconds` late
    lose-answer          the target's answer is lost: the attempt counts as failed though the handler ran
    throttle             an attempt counts as one sign of overload, which slows the queue
"""

from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

import msgspec

Kind = Literal["refuse-create", "lose-create-reply", "duplicate-dispatch", "late-dispatch", "lose-answer", "throttle"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`queue` is a queue id ("" = every queue). The first `skip` chances pass, then at most `times` (null = always)
    hit, each with `probability`."""

    kind: Kind
    queue: str = ""
    times: int | None = 1
    skip: int = 0
    probability: float = 1.0
    seconds: float = 1.0


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...] = ()
    seed: int = 0


@dataclass(slots=True)
class _Use:
    rule: Rule
    chances: int = 0
    hits: int = 0


class Faults:
    """A plan and how far it has been used up."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.set(plan or Plan())

    def set(self, plan: Plan) -> None:
        self.plan = plan
        self._random = Random(plan.seed)
        self._uses = [_Use(rule) for rule in plan.rules]

    def hit(self, kind: Kind, queue: str) -> Rule | None:
        """Return the rule that strikes now, if any; asking uses up a chance of each rule that fits."""
        for use in self._uses:
            rule = use.rule
            if rule.kind != kind or rule.queue not in ("", queue):
                continue
            use.chances += 1
            if use.chances <= rule.skip or (rule.times is not None and use.hits >= rule.times):
                continue
            if self._random.random() < rule.probability:
                use.hits += 1
                return rule
        return None

    def report(self) -> list[dict[str, object]]:
        """Return each rule with the chances it had and the hits it made."""
        return [{**msgspec.structs.asdict(use.rule), "chances": use.chances, "hits": use.hits} for use in self._uses]
