"""`make chaos`: rounds on the real emulators and on embedded, each by a seed of its own."""

import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

import click
from rich.console import Console
from rich.table import Table

from emulator import google
from emulator.launch import GOOGLES, stack
from emulator.local import Local, local
from tests.chaos.proxy import FAULTS
from tests.chaos.rounds import Outcome, on_emulators, play

FLAVOURS: tuple[google.Flavour | None, ...] = ("firestore-mode", "firestore", None)  # None: embedded
LENGTH = 12.0


class Backends:
    """Each round's backend, by its seed; an emulator is started once, for all its rounds."""

    def __init__(self, state: Path, running: ExitStack) -> None:
        self._state = state
        self._running = running
        self._hosts: dict[google.Flavour, Mapping[str, str]] = {}
        self._pubsub: Mapping[str, str] = {}  # one serves both flavours

    def of(self, seed: int) -> tuple[str, Local]:
        """Return the backend's name and the backend: embedded too where an emulator is not installed, and say so."""
        flavour = FLAVOURS[seed % len(FLAVOURS)]
        state = self._state / f"seed-{seed}"
        if flavour is not None:
            try:
                return flavour, on_emulators(self._hosts_of(flavour), state, seed)
            except google.Missing as missing:
                print(f"no {flavour}: {missing}")
        return "embedded", self._running.enter_context(local("embedded", state))

    def _hosts_of(self, flavour: google.Flavour) -> Mapping[str, str]:
        if flavour not in self._hosts:
            logs = self._state / "emulators"
            started = stack(flavour, environ=self._pubsub, log_dir=logs, variables=GOOGLES)
            hosts = self._hosts[flavour] = self._running.enter_context(started).hosts
            self._pubsub = {name: host for name, host in hosts.items() if name == "PUBSUB_EMULATOR_HOST"}
        return self._hosts[flavour]


@click.command()
@click.option("--rounds", default=30, show_default=True, type=click.IntRange(1), help="How many rounds to play.")
@click.option("--seed", type=int, help="The first round's seed; the others' follow it.")
def main(rounds: int, seed: int | None) -> None:
    """Let trouble loose on the whole product and check its count; exit 1 if anything is wrong."""
    first = SystemRandom().randrange(1_000_000) if seed is None else seed
    outcomes: list[Outcome] = []
    state = Path(tempfile.mkdtemp(prefix="tally-chaos-"))
    with ExitStack() as running:
        backends = Backends(state, running)
        print(f"seed {first}", flush=True)
        for place in range(rounds):
            name, here = backends.of(first + place)
            outcome = asyncio.run(play(here, first + place, length=LENGTH))
            outcomes.append(outcome)
            _tell(place + 1, name, outcome)
    Console().print(_table(outcomes))
    wrong = [str(outcome.seed) for outcome in outcomes if outcome.wrong]
    print(f"wrong: {', '.join(wrong) or 'none'}")
    if wrong:
        print(f"logs: {state}")
    else:
        shutil.rmtree(state)
    sys.exit(1 if wrong else 0)


def _tell(number: int, backend: str, outcome: Outcome) -> None:
    verdict = "WRONG" if outcome.wrong else "exact"
    print(f"round {number}, {backend}: {outcome.ballots:,} ballots {verdict} in {outcome.seconds:.0f} s", flush=True)
    for sentence in outcome.wrong:
        print(f"  {sentence}")
    if outcome.wrong:
        print(f"  again: make chaos ROUNDS=1 SEED={outcome.seed}", flush=True)


def _table(outcomes: list[Outcome]) -> Table:
    fired: Counter[str] = sum((Counter(outcome.fired) for outcome in outcomes), Counter())
    table = Table(
        "what", "times", title=f"rounds: {len(outcomes)}, the longest {max(o.seconds for o in outcomes):.0f} s"
    )
    for name in sorted(name for name in fired if ":" not in name):
        table.add_row(name, f"{fired[name]:,}")
    for fault, meaning in {**FAULTS, "unreachable": "not sent: the service was out of reach"}.items():
        times = sum(number for name, number in fired.items() if name.endswith(f":{fault}"))
        table.add_row(f"call {meaning}", f"{times:,}")
    table.add_row("ballots", f"{sum(outcome.ballots for outcome in outcomes):,}")
    table.add_row("votes lost", f"{sum(outcome.lost for outcome in outcomes):,}")
    table.add_row("votes doubled", f"{sum(outcome.doubled for outcome in outcomes):,}")
    return table


if __name__ == "__main__":
    main()
