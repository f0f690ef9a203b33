"""Bugs planted in the shipped source, to see that the simulation catches them: run as a process of its own.

    python -m tests.simulation.planted SEEDS        prints a JSON line a bug: the first of so many seeds that catches it
    python -m tests.simulation.planted --known      the same, from the seed that is known to

A bug is one or more replacements of text that must each be found exactly once. They are made while the modules are
imported, in a forked child for each bug; nothing of tally is imported before. The oracles know of no bug.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import NamedTuple

from tests.simulation import ledger_bugs, queue_bugs, vote_bugs
from tests.simulation.bugs import Bug, Edit

BUGS = (*ledger_bugs.BUGS, *vote_bugs.BUGS, *queue_bugs.BUGS)
KNOWN_SEEDS = 40  # small changes of the pipeline shift what befalls a seed: some more may be tried
# Costly to import, and the same for every bug: the children inherit them.
_SHARED = ("numpy", "msgspec", "asyncio", "concurrent.futures", "logging", "rich.table")


class Caught(NamedTuple):
    """`seed` None: no seed caught it; `sentence`: the first thing that was seen to be wrong."""

    bug: str
    seed: int | None
    sentence: str


def search(seeds: Callable[[Bug], range]) -> Iterator[Caught]:
    """Find the first of each bug's seeds that catches it, on all cores, in the order of the bugs."""
    for module in _SHARED:
        import_module(module)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda bug: _in_child(bug, seeds(bug)), BUGS)


def apply(source: str, edits: Iterable[Edit], path: str) -> str:
    """Return the source with the edits made; raise ValueError for one that is not found exactly once."""
    for edit in edits:
        if (count := source.count(edit.old)) != 1:
            raise ValueError(f"{path}: {edit.old!r} is there {count} times, want once")
        source = source.replace(edit.old, edit.new)
    return source


class _Planter(MetaPathFinder):
    """Loads tally's modules from changed source."""

    def __init__(self, bug: Bug) -> None:
        self._edits = {module: [edit for edit in bug.edits if edit.module == module] for module in bug.modules}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._edits:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._edits[fullname])
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, edits: list[Edit]) -> None:
        super().__init__(fullname, path)
        self._edits = edits

    def get_code(self, fullname: str) -> object:  # type: ignore[override]  # never None, and never from a cache
        source = self.get_data(self.path).decode()
        return compile(apply(source, self._edits, self.path), self.path, "exec")


def _in_child(bug: Bug, seeds: range) -> Caught:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ours)
            with os.fdopen(theirs, "w") as pipe:
                json.dump(_hunt(bug, seeds), pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"the child of planted bug {bug.name!r} failed: see its message above")
    return Caught(*json.loads(answer))


def _hunt(bug: Bug, seeds: range) -> Caught:
    sys.meta_path.insert(0, _Planter(bug))
    logging.getLogger().addHandler(logging.NullHandler())  # for what the bugs make the services log
    simulation = import_module(bug.simulation)
    for seed in seeds:
        wrong = simulation.simulate(seed).wrong
        if wrong:
            return Caught(bug.name, seed, wrong[0])
    return Caught(bug.name, None, "")


def main(argument: str) -> None:
    known = argument == "--known"
    for caught in search(lambda bug: range(bug.seed, bug.seed + KNOWN_SEEDS) if known else range(int(argument))):
        print(json.dumps(caught), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
