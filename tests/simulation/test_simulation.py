"""A few hundred seeds, and those that found something once. `make simulate` runs more."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.run import simulate
from tests.simulation.sweep import sweep, unfired

SEEDS = 200
# Seeds that found something, as the simulation was then; each has a unit test of its own too.
FOUND = (17, 19, 25, 56, 74)


def test_every_seed_holds_and_every_fault_fires() -> None:
    outcomes = list(sweep(range(1_000, 1_000 + SEEDS)))
    wrong = {outcome.seed: outcome.wrong for outcome in outcomes if outcome.wrong}
    assert not wrong
    fired: Counter[str] = sum((outcome.fired for outcome in outcomes), Counter())
    assert unfired(fired) == []
    assert sum(outcome.fired["ledger:folded"] > 0 for outcome in outcomes) >= 0.9 * SEEDS
    assert min(outcome.ballots for outcome in outcomes) >= 300


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_something_hold(seed: int) -> None:
    assert simulate(seed).wrong == ()


def test_a_seed_replays_alike_whatever_the_hash_seed() -> None:
    logs = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seed", "3"],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert logs[0] == logs[1]
    assert "commit" in logs[0]
