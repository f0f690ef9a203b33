"""Figures and ratios. Contenders take turns in one run, so that a noisy machine is noisy to all alike."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

Contender = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Samples of one thing, one a repetition, in `unit`."""

    section: str
    name: str
    unit: str
    samples: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Return (greatest − least) / median."""
        return (max(self.samples) - min(self.samples)) / self.median if self.median else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A figure that must stay on one side of `bound`; `aim` is where it should be."""

    name: str
    figure: Figure
    bound: float
    aim: float | None = None
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.figure.median <= self.bound if self.at_most else self.figure.median >= self.bound

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        aim = f", aim {self.aim:g}" if self.aim is not None else ""
        return (
            f"{'ok  ' if self.met else 'FAIL'} {self.name}: {self.figure.median:.3g} (want {sign} {self.bound:g}{aim})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a section found."""

    figures: tuple[Figure, ...]
    budgets: tuple[Budget, ...] = ()


async def alternate(repetitions: int, contenders: Mapping[str, Contender]) -> dict[str, list[float]]:
    """Run every contender once a repetition, beginning with another one each time."""
    names = list(contenders)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for repetition in range(repetitions):
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            samples[name].append(await contenders[name]())
    return samples


def ratio(section: str, name: str, one: Sequence[float], other: Sequence[float]) -> Figure:
    """Return one ÷ other, repetition by repetition."""
    return Figure(section=section, name=name, unit="×", samples=tuple(a / b for a, b in zip(one, other, strict=True)))
