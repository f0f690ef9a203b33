"""Finds the function of a call and its arguments, through upgrades where the call is an old one."""

from typing import Any, NamedTuple

import msgspec

from tally.errors import NotFound
from tally.ports import Store
from tally.tasks import blobs
from tally.tasks.call import Call
from tally.tasks.codec import Undecodable
from tally.tasks.deferred import Deferred, Registry

_UPGRADES = 8  # renames in a row; more is a circle


class Resolved(NamedTuple):
    deferred: Deferred[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


async def arguments(store: Store, call: Call) -> bytes:
    """Return the arguments, empty where their blob is gone (which fits no JSON object). Raises BackendError."""
    try:
        return await blobs.get(store, call.blob) if call.blob else bytes(call.arguments)
    except NotFound:
        return b""


def resolve(registry: Registry, call: Call, data: bytes) -> Resolved:
    """Return the function that takes the arguments. Raises Undecodable."""
    name = call.call
    for _ in range(_UPGRADES):
        deferred = registry.functions.get(name)
        problem = Undecodable(f"no task {name!r} is registered here", code="unknown-task")
        if deferred is not None:
            try:
                return Resolved(deferred, *deferred.codec.decode(data))
            except Undecodable as error:
                problem = error
        upgrade = registry.upgrades.get(name)
        if upgrade is None:
            raise problem
        try:
            name, given = upgrade(msgspec.json.decode(data))
            data = msgspec.json.encode(given)
        except Exception as error:
            raise Undecodable(f"upgrade of {name!r} failed: {error!r}") from error
    raise Undecodable(f"upgrades of {call.call!r} go in a circle")
