"""Bytes too large for one entity, in chunks: the payload of a large task and the result of a large run.

A blob is written before what refers to it, and never changed; one that nothing refers to (its writer died) goes by its
expiry. Chunks are keyed by a random id, so nothing is hot.
"""

from collections.abc import Iterator
from hashlib import sha256
from random import Random

import msgspec

from tally import limits
from tally.errors import NotFound, TooLarge
from tally.ports import Delete, Entity, Key, Store, Upsert, Write, read
from tally.tasks import expiry, keys


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """Where a blob lies; `digest` is the SHA-256 of all of it, in hex."""

    id: str
    size: int
    digest: str

    def chunks(self) -> tuple[Key, ...]:
        return tuple(keys.chunk(self.id, index) for index in range(-(-self.size // limits.CHUNK_BYTES)))


async def put(store: Store, data: bytes, *, expires: int | None, random: Random) -> Blob:
    """Write a blob; `expires` in µs, None never. Raises TooLarge, or what the store does."""
    if len(data) > limits.BLOB_BYTES:
        raise TooLarge(f"{len(data)} bytes: the limit is {limits.BLOB_BYTES}")
    blob = Blob(id=f"{random.getrandbits(128):032x}", size=len(data), digest=sha256(data).hexdigest())
    for index, key in enumerate(blob.chunks()):
        chunk = data[index * limits.CHUNK_BYTES : (index + 1) * limits.CHUNK_BYTES]
        await store.commit([Upsert(expiry.entity(key, {"data": chunk}, expires))])
    return blob


async def get(store: Store, blob: Blob) -> bytes:
    """Read a blob whole. Raises NotFound when a chunk is missing or is not what was written."""
    found: dict[Key, Entity] = {}
    for part in _by_lookup(blob.chunks()):
        found.update((await read(store, part))[0])
    data = b"".join(_bytes(found[key]) for key in blob.chunks() if key in found)
    if sha256(data).hexdigest() != blob.digest:
        raise NotFound(f"blob {blob.id} of {blob.size} bytes is not there any more")
    return data


def deletes(blob: Blob | None) -> list[Write]:
    """Return the writes that remove a blob."""
    return [] if blob is None else [Delete(key=key) for key in blob.chunks()]


def _bytes(entity: Entity) -> bytes:
    data = entity.properties["data"]
    return data if isinstance(data, bytes) else b""


def _by_lookup(chunks: tuple[Key, ...]) -> Iterator[tuple[Key, ...]]:
    """Cut the keys so that no lookup's answer passes LOOKUP_BYTES."""
    step = limits.LOOKUP_BYTES // limits.CHUNK_BYTES
    for start in range(0, len(chunks), step):
        yield chunks[start : start + step]
