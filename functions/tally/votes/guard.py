"""The probe of the store's version guard: a worker that starts tries the very commits that it will make.

Without FAIL, or on a store that ignores it, a stale commit answers OK and corrupts the ledger. So one is made on
entities of the worker's own; it must be refused and change nothing.
"""

from collections.abc import Sequence
from uuid import UUID

import numpy as np

from tally.errors import Refused, UnsafeStore
from tally.ports import Delete, Key, Store, read
from tally.votes import keys, ledger
from tally.votes.ledger import Commit, Partition, Shard
from tally.votes.records import Records


async def probe(store: Store, name: UUID) -> None:
    """Raise UnsafeStore if the store's version guard does not hold; Unavailable if that could not be found out.

    `name` makes the probe's keys, outside the alphabet of poll ids; they are deleted after.
    """
    shard = keys.shard(f"~probe-{name.hex}", 0)
    tried = [shard, *(keys.segment(shard, sequence) for sequence in (1, 2, 7))]
    try:
        await _probe(store, shard)
    finally:
        await store.commit([Delete(key=key) for key in tried])


async def _probe(store: Store, shard: Key) -> None:
    one = Records(*(np.ones(1, np.uint64) for _ in range(3)))
    first = ledger.plan(Partition(), one, "keep")
    created = await store.commit(first.writes(shard, 0))
    stale = first.after(Partition(), created.versions[0], "keep")
    other = Records(one.high + np.uint64(1), one.low, one.rank)
    second = ledger.plan(stale, other, "keep")
    updated = await store.commit(second.writes(shard, stale.version))
    late = Commit(shard=Shard(sequence=7, ballots=9), records=other, folded=())
    try:
        answer = await store.commit(late.writes(shard, stale.version))
    except Refused:
        found, _ = await read(store, _written(shard, (1, 2, 7)))
        if keys.segment(shard, 7) in found or found[shard].version != updated.versions[0]:
            raise UnsafeStore("the store refused a stale commit but wrote a part of it") from None
        return
    raise UnsafeStore(f"the store took a stale commit (conflict_detected: {answer.conflict_detected})")


def _written(shard: Key, sequences: Sequence[int]) -> list[Key]:
    return [shard, *(keys.segment(shard, sequence) for sequence in sequences)]
