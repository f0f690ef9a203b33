"""The planted bugs: one for each sentence of the pipeline's failure table, as edits of the shipped source.

`seed` is the first seed known to catch it. Some bugs cannot live with the worker's probe of the version guard, which
refuses to start on them: those take the probe out too, so that the ledger itself is put to the test.
"""

from typing import NamedTuple


class Edit(NamedTuple):
    module: str
    old: str
    new: str


class Bug(NamedTuple):
    name: str
    seed: int
    edits: tuple[Edit, ...]
    simulation: str = "tests.simulation.run"  # the module whose `simulate(seed).wrong` is to find it

    @property
    def modules(self) -> set[str]:
        return {edit.module for edit in self.edits}


def votes(module: str, old: str, new: str) -> Edit:
    """Return an edit of a module of the votes."""
    return Edit(f"tally.votes.{module}", old, new)
