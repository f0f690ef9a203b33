"""Outages, one a row: voters that try again until their 202, two functions, a worker, and a service that goes away.

    python -m tests.unit.votes.outages

prints the table: what was done, what the worker did, the time to recover, the votes lost and doubled. Time is virtual.
"""

import logging
from collections.abc import Sequence

from tally.errors import Unavailable
from tests.unit.votes.outage import Outage, Row
from tests.unit.votes.outage_scene import run

FORBIDDEN = Unavailable("forbidden", status="PERMISSION_DENIED")
STORE = ("get", "commit", "query")

OUTAGES = (
    *(Outage(what="Datastore gone", seconds=seconds, worker=STORE, function=STORE) for seconds in (1, 60, 600)),
    *(Outage(what="Pub/Sub gone, pull", seconds=seconds, worker=("pull",)) for seconds in (1, 60, 600)),
    *(Outage(what="Pub/Sub gone, acknowledge", seconds=seconds, worker=("acknowledge",)) for seconds in (1, 60, 600)),
    *(Outage(what="Pub/Sub gone, extend", seconds=seconds, worker=("extend",)) for seconds in (1, 60, 600)),
    *(Outage(what="Pub/Sub gone, dead letters", seconds=seconds, worker=("publish",)) for seconds in (1, 60, 600)),
    *(Outage(what="Pub/Sub gone, function", seconds=seconds, function=("publish",)) for seconds in (1, 60, 600)),
    Outage(
        what="Pub/Sub gone for all",
        seconds=600,
        worker=("pull", "acknowledge", "extend", "publish"),
        function=("publish",),
    ),
    Outage(what="both slow by 2 s", seconds=120, latency=1.0),
    Outage(what="one partition poisoned", seconds=600, poisoned=True),
    Outage(what="definitions unreadable, worker", seconds=600, unreadable=True),
    Outage(what="definitions unreadable, function", seconds=600, function=("get",)),
    Outage(what="permission on Datastore lost", seconds=600, worker=STORE, error=FORBIDDEN),
    Outage(what="permission to commit lost", seconds=600, worker=("commit",), error=FORBIDDEN),
    Outage(what="permission to pull lost", seconds=600, worker=("pull",), error=FORBIDDEN),
)


def table(rows: Sequence[Row]) -> str:
    lines = ["| what was done | what it did | recovered after | accepted | lost | doubled |", "|--|--|--|--|--|--|"]
    lines += [
        f"| {row.outage} | {row.did} | {row.recovered} s | {row.accepted} | {row.lost} | {row.doubled} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable()
    print(table([run(outage) for outage in OUTAGES]))
