"""A call of a registered function as it travels, and what carries it. The payload of the task is this, as JSON:

    {"v":1, "call":"mail.send", "arguments":{"to":"a@b.example"}, "id":"…", "epoch":µs, "due":µs}

Only `v`, `call` and `arguments` are needed, so that any language can make a call through the queue's HTTP interface.
Large arguments lie in a blob, and `blob` says where.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

import msgspec

from tally.retry import UNLIMITED, RetryPolicy
from tally.tasks.blobs import Blob
from tally.tasks.codec import Undecodable

VERSION = 1
PATIENT = RetryPolicy(max_attempts=UNLIMITED)  # of the task of a call: its runner counts attempts, not the queue


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`due` and `ends` (it expires) in µs; `keep`: seconds that the record stays after the end, -1 the function's."""

    v: int
    call: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    id: str = ""
    epoch: int = 0
    due: int = 0
    ends: int | None = None
    keep: float | None = -1.0
    retry: RetryPolicy | None = None
    blob: Blob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A task on its way to a worker. `hop` numbers push deliveries; None where the queue itself brings a task again.

    `id` is the run's where the payload names none; `timeout` (seconds) how long the function may run.
    """

    queue: str
    id: str
    payload: bytes
    epoch: int = 0
    due: int = 0
    hop: int | None = None
    tag: str | None = None
    timeout: float = 600.0
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the task's name in the queue: hashed, another for each run of an id and each hop of a run."""
        return digest(self.queue, self.id, str(self.epoch), str(self.hop))


class Carrier(Protocol):
    """What takes deliveries to the workers: a pull queue, a push queue, or (eager) the function itself."""

    async def carry(self, delivery: Delivery) -> None:
        """Take a delivery; one of the same name that was taken before is success. Raises BackendError."""
        ...

    async def hurry(self, name: str) -> bool:
        """Bring the delivery of this name now rather than at its time; False when none waits. Raises BackendError."""
        ...


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Call).decode


def encode(call: Call) -> bytes:
    return _encode(call)


def decode(payload: bytes) -> Call:
    """Read a call. Raises Undecodable."""
    try:
        call = _decode(payload)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise Undecodable(f"not a call: {error}") from error
    if call.v != VERSION:
        raise Undecodable(f"call version {call.v}: this Tally reads version {VERSION}")
    return call


def digest(*parts: str) -> str:
    """Return 32 hex digits over the parts: names made of it are spread evenly, however alike the parts are."""
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
