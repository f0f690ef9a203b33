"""A few hundred seeds, and those that found something once. `make simulate` runs more."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.bugs import Edit
from tests.simulation.planted import BUGS, Caught, apply
from tests.simulation.run import simulate
from tests.simulation.sweep import sweep, unfired

SEEDS = 200
# Seeds that found something, as the simulation was then; each has a unit test of its own too.
FOUND = (17, 19, 25, 56, 74, 1090)


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


def test_every_planted_bug_is_caught() -> None:
    lines = _python("tests.simulation.planted", "--known").splitlines()
    caught = [Caught(*json.loads(line)) for line in lines]
    assert [each.bug for each in caught if each.seed is None] == []
    assert [each.bug for each in caught] == [bug.name for bug in BUGS]


@pytest.mark.parametrize("old", ["nowhere in the source", "twice"])
def test_a_planted_bug_must_fit_the_source_exactly_once(old: str) -> None:
    with pytest.raises(ValueError, match="want once"):
        apply("twice twice", [Edit("module", old, "")], "module.py")


def test_a_seed_replays_alike_whatever_the_hash_seed() -> None:
    first, second = (_python("tests.simulation", "--seed", "3", PYTHONHASHSEED=hash_seed) for hash_seed in "12")
    assert first == second
    assert "worker-started" in first


def _python(module: str, *arguments: str, **environ: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=True).stdout
