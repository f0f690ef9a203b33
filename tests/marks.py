"""`python -m tests.marks`: the lines of the vote pipeline that need no test to reach them, each with its reason.

A mark is `# pragma: no branch  # reason` or `no cover`. `make coverage` lists them; more than MOST are too many.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST = 10
PIPELINE = Path(__file__).parents[1] / "functions/tally/votes"
_MARK = re.compile(r"# pragma: no (?:cover|branch)(?:  # (?P<reason>.+))?$", re.MULTILINE)


class Mark(NamedTuple):
    """`reason` is empty where none is given."""

    place: str
    reason: str


def marks(folder: Path = PIPELINE) -> Iterator[Mark]:
    for file in sorted(folder.rglob("*.py")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if mark := _MARK.search(line):
                yield Mark(f"{file.name}:{number}", mark["reason"] or "")


def main() -> int:
    found = list(marks())
    for mark in found:
        print(f"{mark.place}: {mark.reason or 'NO REASON'}")
    print(f"{len(found)} marked, at most {MOST}")
    return int(len(found) > MOST or not all(mark.reason for mark in found))


if __name__ == "__main__":
    sys.exit(main())
