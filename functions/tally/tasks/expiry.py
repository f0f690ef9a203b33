"""Entities that go when their time is over: by the store's time-to-live policy, or by a sweep, whichever is first.

The policy reads an instant that no index holds. The sweep reads `gone`, a string that begins with a shard, so that no
index grows at one end only.
"""

from collections.abc import Mapping

from tally import limits
from tally.clock import to_datetime
from tally.errors import Refused
from tally.ports import Delete, Entity, Key, Query, Store, Value
from tally.tasks import keys


def entity(key: Key, properties: Mapping[str, Value], expires: int | None) -> Entity:
    """Return an entity that goes at `expires` (µs); None: never."""
    if expires is None:
        return Entity(key=key, properties=properties)
    made = {**properties, keys.EXPIRE_AT: to_datetime(expires), keys.GONE: keys.expires(key, expires)}
    return Entity(key=key, properties=made, indexed=frozenset({keys.GONE}))


async def sweep(store: Store, kind: str, now: int) -> int:
    """Remove the entities of a kind whose time is over; return how many. One that has been written anew stays."""
    removed = 0
    for shard in range(keys.EXPIRY_SHARDS):
        query = Query(kind=kind, filters=keys.expired_range(shard, now), limit=limits.LARGE_ENTITIES)
        while entities := (await store.query(query)).entities:
            try:
                await store.commit([Delete(key=each.key, base_version=each.version) for each in entities])
            except Refused:
                break  # the next sweep sees what is left
            removed += len(entities)
    return removed
