"""Removes the ledger of a poll that was deleted long enough ago. Its definition stays, a tombstone for ever.

Not before PURGE_AFTER: until then votes taken before the deletion may still be on their way, or come as replays.
"""

from tally.clock import SECOND, to_datetime
from tally.errors import Conflict, Refused
from tally.ports import Delete, Key, Store, read
from tally.votes import keys, ledger
from tally.votes.poll import FOREVER, Poll

PURGE_AFTER = 31 * 86_400 * SECOND


async def purge(store: Store, poll: Poll, now: int) -> int:
    """Delete every shard with its segments; return how many entities went. May be run again after any failure.

    Raises Conflict if the poll is not deleted, or not for PURGE_AFTER yet; what the store raises.
    """
    if poll.deleted_at == FOREVER:
        raise Conflict(f"poll {poll.id!r} is not deleted: its ledger stays", code="poll-not-deleted")
    if now < poll.deleted_at + PURGE_AFTER:
        due = to_datetime(poll.deleted_at + PURGE_AFTER)
        raise Conflict(f"poll {poll.id!r} may be purged from {due:%Y-%m-%d %H:%M} UTC on", code="too-early-to-purge")
    return sum([await _purge(store, keys.shard(poll.id, partition)) for partition in range(poll.partitions)])


async def _purge(store: Store, key: Key) -> int:
    """Delete one shard and its segments in one commit: what a reader or worker meets is whole, or gone."""
    while shard := (await read(store, [key]))[0].get(key):
        segments = [keys.segment(key, segment.sequence) for segment in ledger.parse_shard(shard).segments]
        try:
            await store.commit(
                [Delete(key=key, base_version=shard.version), *(Delete(key=segment) for segment in segments)]
            )
        except Refused:  # a worker's last commit came between, or our own was applied and its reply lost
            continue
        return 1 + len(segments)
    return 0
