"""`python -m tests.simulation`: sweep seeds, replay one, or look for the planted bugs."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from time import perf_counter

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.planted import BUGS, Caught
from tests.simulation.run import Outcome, simulate
from tests.simulation.sweep import sweep, unfired
from tests.simulation.world import EVENTS, RATES


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many seeds to run.")
@click.option("--start", default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=int, help="Replay this seed and print its event log.")
@click.option("--planted", "find_planted", is_flag=True, help="Find the first seed that catches each planted bug.")
def main(seeds: int, start: int, seed: int | None, find_planted: bool) -> None:
    """Simulate the vote pipeline under faults; exit 1 if anything is wrong."""
    if find_planted:
        sys.exit(0 if _planted(seeds) else 1)
    sys.exit(0 if (_sweep(range(start, start + seeds)) if seed is None else _replay(seed)) else 1)


def _replay(seed: int) -> bool:
    outcome = simulate(seed, log=True)
    for line in outcome.log:
        print(line)
    _tell(outcome)
    return not outcome.wrong


def _sweep(seeds: range) -> bool:
    console = Console()
    begun = perf_counter()
    outcomes: list[Outcome] = []
    with _progress(console) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for outcome in sweep(seeds):
            outcomes.append(outcome)
            progress.advance(task)
            if outcome.wrong:
                _tell(outcome)
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())
    console.print(_faults(fired, outcomes))
    wrong = [outcome.seed for outcome in outcomes if outcome.wrong]
    folded = sum(outcome.fired["ledger:folded"] > 0 for outcome in outcomes)
    seconds = perf_counter() - begun
    print(
        f"{len(outcomes)} seeds in {seconds:.0f} s ({len(outcomes) / seconds:.1f}/s): "
        f"{sum(outcome.ballots for outcome in outcomes):,} ballots cast, "
        f"{sum(outcome.counted for outcome in outcomes):,} counted, "
        f"{sum(outcome.commits for outcome in outcomes):,} commits, {folded / len(outcomes):.1%} of seeds folded"
    )
    if missing := unfired(fired):
        print(f"never happened: {', '.join(missing)}")
    print(f"failing seeds: {', '.join(map(str, wrong)) or 'none'}")
    return not wrong and not missing


def _planted(seeds: int) -> bool:
    console = Console()
    table = Table("planted bug", "first seed", "what was seen", title="Planted bugs")
    caught = 0
    with _progress(console) as progress:
        task = progress.add_task("bugs", total=len(BUGS))
        for bug, seed, sentence in _search(seeds):
            caught += seed is not None
            table.add_row(bug, "none" if seed is None else str(seed), sentence)
            progress.advance(task)
    console.print(table)
    print(f"{caught} of {len(BUGS)} planted bugs caught within {seeds} seeds")
    return caught == len(BUGS)


def _search(seeds: int) -> Iterator[Caught]:
    """Search in a process that has imported nothing of tally yet."""
    command = [sys.executable, "-m", "tests.simulation.planted", str(seeds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Caught(*json.loads(line))


def _tell(outcome: Outcome) -> None:
    for sentence in outcome.wrong[:5]:
        print(f"seed {outcome.seed}: {sentence}", flush=True)
    if not outcome.wrong:
        print(f"seed {outcome.seed}: {outcome.counted} of {outcome.ballots} ballots count, all held")


def _faults(fired: Counter[str], outcomes: Sequence[Outcome]) -> Table:
    table = Table("fault", "times", "seeds", title="Faults and events")
    for name in (*RATES, *EVENTS):
        table.add_row(name, f"{fired[name]:,}", f"{sum(outcome.fired[name] > 0 for outcome in outcomes):,}")
    return table


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )


if __name__ == "__main__":
    main()
