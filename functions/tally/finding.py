"""What `tally doctor` says of one thing it looked at."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`mend` is the command that helps, empty where there is nothing to mend; a `note` works, but may surprise."""

    check: str
    level: Level
    says: str
    mend: str = ""


def ok(check: str, says: str) -> Finding:
    return Finding(check=check, level="ok", says=says)


def note(check: str, says: str, mend: str = "") -> Finding:
    return Finding(check=check, level="note", says=says, mend=mend)


def wrong(check: str, says: str, mend: str) -> Finding:
    return Finding(check=check, level="wrong", says=says, mend=mend)
