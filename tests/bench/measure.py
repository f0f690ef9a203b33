"""Figures and ratios. Contenders take turns in one run, so that a noisy machine is noisy to all alike."""

import os
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Run(NamedTuple):
    """One run: units a second by the wall clock, and µs of CPU a unit of what was measured (0: not known)."""

    rate: float
    cpu: float = 0.0


class Cost(NamedTuple):
    """What counting takes when one vote in twenty is sent twice.

    Entity writes per 1,000 votes; the list price of a million votes in dollars; by which share the count is off.
    """

    writes: float
    dollars: float
    off: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Samples of one thing, one a repetition, in `unit`."""

    section: str
    name: str
    unit: str
    samples: tuple[float, ...]
    cpu: tuple[float, ...] = ()
    cost: Cost | None = None
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
        verdict, sign = "ok  " if self.met else "FAIL", "≤" if self.at_most else "≥"
        aim = f", aim {self.aim:g}" if self.aim is not None else ""
        return f"{verdict} {self.name}: {number(self.figure.median)} (want {sign} {number(self.bound)}{aim})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a section found; `skipped` says why it could not run, and what to install."""

    figures: tuple[Figure, ...] = ()
    budgets: tuple[Budget, ...] = ()
    skipped: str = ""


def number(value: float) -> str:
    """Write a number for people: three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


async def alternate(repetitions: int, contenders: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, list[T]]:
    """Run every contender once a repetition, beginning with another one each time."""
    names = list(contenders)
    runs: dict[str, list[T]] = {name: [] for name in names}
    for repetition in range(repetitions):
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            runs[name].append(await contenders[name]())
    return runs


def rates(
    section: str, name: str, unit: str, runs: Sequence[Run], *, cost: Cost | None = None, note: str = ""
) -> Figure:
    """Return the rates of a contender, in `unit`, with its CPU."""
    samples, cpu = tuple(run.rate for run in runs), tuple(run.cpu for run in runs if run.cpu)
    return Figure(section=section, name=name, unit=unit, samples=samples, cpu=cpu, cost=cost, note=note)


def single(section: str, name: str, unit: str, value: float, note: str = "") -> Figure:
    """Return a figure that was taken once."""
    return Figure(section=section, name=name, unit=unit, samples=(float(value),), note=note)


def ratio(section: str, name: str, one: Sequence[Run], other: Sequence[Run]) -> Figure:
    """Return one ÷ other, repetition by repetition; with the ratio of their CPU a unit, where it is known."""
    pairs = list(zip(one, other, strict=True))
    cpu = [a.cpu / b.cpu for a, b in pairs if a.cpu and b.cpu]
    note = f"CPU a unit: {statistics.median(cpu):.2f} of the other's" if cpu else ""
    return Figure(section=section, name=name, unit="×", samples=tuple(a.rate / b.rate for a, b in pairs), note=note)


def group_cpu(pid: int) -> float:
    """Return the CPU seconds used so far by the process group that `pid` leads."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
