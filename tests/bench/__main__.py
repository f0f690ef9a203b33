"""`make bench`: every figure as a ratio measured in the same run, beside what people would use instead.

Section `celery` needs redis-server and what `make bench-celery` installs, and says so where they are not there.
"""

import datetime
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import click
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from emulator.local import heed_signals, local
from tests.bench import (
    backlog,
    ceilings,
    celery,
    chart,
    cloud_tasks,
    embedded,
    http,
    ledger,
    model,
    queues,
    results,
    rivals,
    worker,
)
from tests.bench.measure import Budget, Cost, Figure, Outcome, number
from tests.bench.stage import Stage, machine

Section = Callable[[Stage], Awaitable[Outcome]]
SECTIONS: Mapping[str, Section] = {
    "ceilings": ceilings.run,
    "http": http.run,
    "worker": worker.run,
    "ledger": ledger.run,
    "backlog": backlog.run,
    "results": results.run,
    "model": model.run,
    "peers": rivals.run,
    "celery": celery.run,
    "embedded": embedded.run,
    "queues": queues.run,
    "cloud-tasks": cloud_tasks.run,
}

# What a quick look is for: the sections that have budgets.
QUICK = ("http", "worker", "ledger", "backlog", "model", "peers", "embedded")

_WIDTH = 200


@click.command(
    help=f"Measure all sections, or those named, on the emulators and this machine. They are {', '.join(SECTIONS)}."
)
@click.argument("names", nargs=-1, type=click.Choice(list(SECTIONS)), metavar="[SECTION]...")
@click.option(
    "--quick",
    is_flag=True,
    help="The sections with budgets, or those named: a twentieth of the votes, in less than a minute.",
)
@click.option("--check", is_flag=True, help="One line a budget; exit code 1 if one is not met.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the ratios as a bar chart.")
def main(names: tuple[str, ...], quick: bool, check: bool, as_json: bool, svg: Path | None) -> None:
    console = Console(stderr=True)
    heed_signals()
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as state, local("emulator", Path(state)) as here:
        stage = Stage(here=here, scale=0.05 if quick else 1.0, repetitions=1 if quick else 3)
        outcomes = uvloop.run(_measure(names or (QUICK if quick else tuple(SECTIONS)), stage, console))
    figures = [figure for outcome in outcomes for figure in outcome.figures]
    budgets = [budget for outcome in outcomes for budget in outcome.budgets]
    made = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine()}"
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"made": made, "figures": figures}), indent=2).decode())
    else:
        _show(figures, made)
    if svg is not None:
        svg.write_text(chart.draw(figures, made))
    if check:
        sys.exit(_check(budgets))


async def _measure(names: tuple[str, ...], stage: Stage, console: Console) -> list[Outcome]:
    outcomes = []
    for name in names:
        begun = time.monotonic()
        with console.status(f"measuring {name}"):
            outcome = await SECTIONS[name](stage)
        outcomes.append(outcome)
        console.print(outcome.skipped or f"{name}: {time.monotonic() - begun:.0f} s")
    return outcomes


def _show(figures: list[Figure], made: str) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    columns = ("section", "what", "median", "spread", "CPU µs", "writes / 1,000", "$ / million", "count", "note")
    table = Table(*columns, title=made)
    for figure in figures:
        spread = f"{figure.spread:.0%}" if len(figure.samples) > 1 else ""
        cpu = number(statistics.median(figure.cpu)) if figure.cpu else ""
        cost = _cost(figure.cost) if figure.cost else ("", "", "")
        median = f"{number(figure.median)} {figure.unit}"
        table.add_row(figure.section, figure.name, median, spread, cpu, *cost, figure.note)
    console.print(table)


def _cost(cost: Cost) -> tuple[str, str, str]:
    return number(cost.writes), f"{cost.dollars:,.2f}", f"{cost.off:+.1%}" if cost.off else "exact"


def _check(budgets: list[Budget]) -> int:
    for budget in budgets:
        click.echo(str(budget))
    return 0 if all(budget.met for budget in budgets) else 1


if __name__ == "__main__":
    main()
