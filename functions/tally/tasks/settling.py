"""Settling leases: complete, extend, release, reject. Each is fenced by the lease's token.

The row is written only if it is as the lease left it. If it is not, it is read: the same token on it means that only
its version moved on (an extension whose reply was lost), and the write is tried again; else the task is no longer this
lease's. A reply that was lost is found by the token that a settled row keeps; so settling twice alike is no error.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, TypeAlias

from tally.errors import Refused, Unavailable
from tally.ports import Key
from tally.tasks.lease import Lease
from tally.tasks.row import Row, change
from tally.tasks.rows import TRIES, Rows, by_size

# What became of one lease of a call: `lost` means that it is another's now, or nobody's, and nothing was written.
Settled: TypeAlias = Literal["done", "lost", "unknown"]


async def settle(rows: Rows, leases: Sequence[Lease], new: Callable[[Row], Row]) -> list[tuple[Settled, Row]]:
    """Write `new` of each lease's row; return what became of each, in order, and its row as it is then."""
    now = rows.clock.now()
    live = {lease.row.key: lease for lease in leases if lease.expires_at > now}
    results: dict[Key, tuple[Settled, Row]] = {}
    parts = by_size([lease.row for lease in live.values()], lambda row: row.weight)
    for settled in await asyncio.gather(*(_settle_part(rows, part, new) for part in parts)):
        results.update(settled)
    return [
        results[lease.row.key]
        if lease.row.key in live and live[lease.row.key].token == lease.token
        else ("lost", lease.row)
        for lease in leases
    ]


async def _settle_part(rows: Rows, part: Sequence[Row], new: Callable[[Row], Row]) -> dict[Key, tuple[Settled, Row]]:
    left = {row.key: (row, new(row)) for row in part}
    results: dict[Key, tuple[Settled, Row]] = {}
    for attempt in range(1, TRIES + 1):
        try:
            versions = (await rows.commit(change(list(left.values())))).versions
            return {**results, **_written(left, versions)}
        except Refused:
            with suppress(Unavailable):
                found = await rows.find(left)
                for key, (held, wanted) in list(left.items()):
                    answer = verdict(held, wanted, found.get(key))
                    if answer is None:
                        left[key] = found[key], wanted
                    else:
                        results[key] = answer, found.get(key, held)
                        del left[key]
            if not left:
                return results
            await rows.pause(attempt)
        except Unavailable:
            await rows.pause(attempt)
    return {**results, **{key: ("unknown", held) for key, (held, _) in left.items()}}


def _written(left: dict[Key, tuple[Row, Row]], versions: Sequence[int]) -> dict[Key, tuple[Settled, Row]]:
    return {
        key: ("done", replace(wanted, version=version))
        for (key, (_, wanted)), version in zip(left.items(), versions, strict=False)
    }


def verdict(held: Row, wanted: Row, found: Row | None) -> Settled | None:
    """Say what a refused write means for one row; None: it is still this lease's, try again."""
    if found is None:
        return "lost"
    if found.token == held.token:
        return "done" if wanted.token and found.eta == wanted.eta else None
    return "done" if not wanted.token and found.settled_by == held.token and found.state == wanted.state else "lost"
