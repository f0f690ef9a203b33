"""A short round on each backend; `make chaos` plays longer ones."""

import asyncio
from collections import Counter
from pathlib import Path

from emulator.local import local
from tests.chaos.rounds import Outcome, on_emulators, play
from tests.conftest import Hosts

LENGTH = 8.0


def check(outcome: Outcome) -> Counter[str]:
    """Hold a round to what every round shows; return what happened in it."""
    assert outcome.wrong == ()
    assert (outcome.lost, outcome.doubled) == (0, 0)
    fired = Counter(outcome.fired)
    for deed in ("worker kill", "function kill", "worker terminate", "freeze past the deadline"):
        assert fired[deed] > 0, deed
    return fired


async def test_rounds_on_each_datastore_are_exact(emulators: Hosts, tmp_path: Path) -> None:
    """Both at once: most of a round is waiting for leases to end."""
    rounds = [
        play(on_emulators(emulators("firestore-mode"), tmp_path / "first", 1), 1, length=LENGTH),
        play(on_emulators(emulators("firestore"), tmp_path / "second", 2), 2, length=LENGTH),
    ]
    outcomes = await asyncio.gather(*rounds)
    # On a busy machine those who die may have held nothing yet, but not in both rounds.
    assert any(outcome.fired["redelivered"] for outcome in outcomes)
    for outcome in outcomes:
        fired = check(outcome)
        assert fired["service out of reach"] == 2
        assert any(
            fired[f"{method}:{fault}"] for method in ("Commit", "Publish") for fault in ("reply-lost", "failed-after")
        )


async def test_a_round_on_embedded_is_exact(tmp_path: Path) -> None:
    with local("embedded", tmp_path) as here:
        assert check(await play(here, 3, length=LENGTH))["redelivered"] > 0
