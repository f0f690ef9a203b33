"""`make mutants`: changes the code that counts in small ways, one at a time; a test must fail for each.

mutmut makes the mutants of the pure modules and runs their unit tests, in a copy of the project. What survives must
be listed in survivors.toml with the reason why no test can or should tell it; an unlisted survivor fails the run, and
so does an entry that no mutant needs. Arguments name mutants to try alone, as `tally.votes.ledger.*`.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
COPY = Path(".mutants")
TESTS = ("ballot", "batch", "certificate", "decoder", "ledger", "records", "recount", "verdict")
FIXTURES = ("pipeline", "scripted")
_MUTMUT = str(Path(sys.executable).with_name("mutmut"))
# What mutmut notes of a mutant: pytest's exit code, or its own. Anything else is no verdict, an error of the run.
_KILLED: dict[int | None, str] = {1: "killed", 36: "killed by time", -24: "killed by time", -9: "killed by time"}
_SURVIVED: dict[int | None, str] = {0: "survived", 5: "no test runs it", 33: "no test runs it"}


class Mutant(NamedTuple):
    """One change: `was` and `now` are the lines that differ, without their indent."""

    function: str
    was: str
    now: str


def main() -> int:
    _lay_out()
    made = subprocess.run([_MUTMUT, "run", *sys.argv[1:]], cwd=COPY, env=_environ(), check=False)
    if made.returncode:
        return made.returncode
    some = len(sys.argv) > 1
    outcomes = {name: code for name, code in _outcomes().items() if code is not None or not some}
    told = Counter((_KILLED | _SURVIVED).get(code, f"no verdict ({code})") for code in outcomes.values())
    print(f"{len(outcomes)} mutants:", ", ".join(f"{count} {what}" for what, count in told.most_common()))
    survivors = [_mutant(name) for name, code in outcomes.items() if code in _SURVIVED]
    listed = _listed()
    unlisted = [mutant for mutant in survivors if mutant not in listed]
    idle = set() if some else listed - set(survivors)
    for title, mutants in (("not listed", unlisted), ("listed, but killed or gone", sorted(idle))):
        for mutant in mutants:
            print(f"{title}: {mutant.function}\n  - {mutant.was}\n  + {mutant.now}")
    print(f"{len(survivors)} survivors, {len(unlisted)} of them not listed; {len(idle)} entries that none needs")
    return 1 if unlisted or idle or any(what.startswith("no verdict") for what in told) else 0


def _lay_out() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree("functions/tally", COPY / "src/tally", ignore=shutil.ignore_patterns("__pycache__"))
    tests = COPY / "tests/unit/votes"
    tests.mkdir(parents=True)
    shutil.copy("tests/vectors.json", COPY / "tests")
    for name in (*(f"test_{module}" for module in TESTS), *FIXTURES):
        shutil.copy(f"tests/unit/votes/{name}.py", tests)
    shutil.copy(HERE / "profile.py", COPY / "conftest.py")
    shutil.copy(HERE / "settings.toml", COPY / "pyproject.toml")


def _environ() -> dict[str, str]:
    # A mutant is a forked process: threads of numpy's would not come along.
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def _outcomes() -> dict[str, int | None]:
    outcomes: dict[str, int | None] = {}
    for file in sorted(COPY.glob("mutants/src/tally/votes/*.meta")):
        outcomes |= json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
    return outcomes


def _mutant(name: str) -> Mutant:
    shown = subprocess.run([_MUTMUT, "show", name], cwd=COPY, capture_output=True, text=True, check=True).stdout
    changes = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    was, now = (" ".join(line[1:].strip() for line in changes if line[0] == sign) for sign in "-+")
    module, _, mangled = name.rpartition(".")
    function = mangled.partition("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    return Mutant(f"{module.rpartition('.')[2]}.{function}", was, now)


def _listed() -> set[Mutant]:
    entries = tomllib.loads((HERE / "survivors.toml").read_text(encoding="utf-8")).get("survivor", [])
    assert all(entry["reason"].strip() for entry in entries), "every survivor has a reason"
    return {Mutant(entry["function"], entry["was"], now) for entry in entries for now in entry["now"]}


if __name__ == "__main__":
    sys.exit(main())
