"""Completing leases and writing something of the caller's in one commit: all of it, or nothing.

What is written exists if and only if every one of the tasks was finished by these leases; so tasks can be exchanged for
what came of them, and be in one such exchange only.
"""

from collections.abc import Sequence
from contextlib import suppress

from tally import limits
from tally.errors import InvalidInput, Refused, Unavailable
from tally.ports import Write
from tally.tasks.lease import Lease
from tally.tasks.row import change, done
from tally.tasks.rows import TRIES, Rows
from tally.tasks.settling import Settled, verdict


async def complete_with(rows: Rows, leases: Sequence[Lease], writes: Sequence[Write]) -> Settled:
    """Finish every lease and apply the writes; return what became of all. Raises InvalidInput past a commit's limit."""
    now = rows.clock.now()
    if any(lease.expires_at <= now for lease in leases):
        return "lost"
    left = {lease.row.key: (lease.row, done(lease.row, now=now, by=lease.token)) for lease in leases}
    for attempt in range(1, TRIES + 1):
        changes = [*change(list(left.values())), *writes]
        if len(changes) > limits.COMMIT_MUTATIONS:
            raise InvalidInput(
                f"{len(leases)} tasks in one commit of {len(changes)}: the limit is {limits.COMMIT_MUTATIONS}"
            )
        try:
            await rows.commit(changes)
            return "done"
        except Refused:
            with suppress(Unavailable):
                found = await rows.find(left)
                found_out = {verdict(held, wanted, found.get(key)) for key, (held, wanted) in left.items()}
                if found_out == {"done"}:
                    return "done"  # by a try whose reply was lost
                if found_out & {"lost", "done"}:
                    return "lost"
                left = {key: (found[key], wanted) for key, (_, wanted) in left.items()}
            await rows.pause(attempt)
        except Unavailable:
            await rows.pause(attempt)
    return "unknown"
