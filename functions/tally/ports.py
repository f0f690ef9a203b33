"""The ports: what Tally asks of a store and of a message service, as small Protocols with value types of their own.

Implementations: `gcp/` (Google Cloud and its emulators), `embedded/` (one SQLite file), `testing/` (fakes that can fail
as badly as the services may). All raise only the `BackendError`s of errors.py. No vendor type passes a port.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tally.retry import RetryPolicy

# A path of (kind, name or id), root first: (("Shard", "p:3"), ("Segment", 17)). Ids are positive, names not empty.
Key: TypeAlias = tuple[tuple[str, int | str], ...]
Value: TypeAlias = None | bool | int | float | str | bytes | datetime | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """`indexed` names the properties that queries use; all others are unindexed.

    `version` is the store's, 0 = not read from it.
    """

    key: Key
    properties: Mapping[str, Value]
    indexed: frozenset[str] = frozenset()
    version: int = 0


class OnConflict(Enum):
    """What the store does with an `Update` whose base version is stale.

    KEEP_STORED is the service's default: it answers OK although the update was not (or, on one emulator, was) applied.
    """

    FAIL = "fail"
    KEEP_STORED = "keep-stored"


@dataclass(frozen=True, slots=True)
class Insert:
    """Write a new entity; if the key exists the whole commit is refused."""

    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Write an entity that exists and has `base_version`; else as `on_conflict` says."""

    entity: Entity
    base_version: int
    on_conflict: OnConflict


@dataclass(frozen=True, slots=True)
class Upsert:
    """Write an entity, whatever is there."""

    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a key, if it has `base_version` (else the commit is refused), or (None) whatever is there."""

    key: Key
    base_version: int | None = None


Write: TypeAlias = Insert | Update | Upsert | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What a read found. Only `missing` keys are absent; `deferred` ones must be asked for again.

    `read_time`: the store's clock in µs, None where it gives none.
    """

    found: tuple[Entity, ...]
    missing: tuple[Key, ...]
    deferred: tuple[Key, ...] = ()
    read_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One version a write, in order (a delete's has no meaning). `conflict_detected`: the store kept a stale write out
    and answered OK all the same; a caller that asked for FAIL must stop."""

    versions: tuple[int, ...]
    conflict_detected: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    property: str
    op: Literal["=", "<", "<=", ">", ">="]
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Entities of one kind, below `ancestor` if given. `order` names properties, "-x" descending; none means by key."""

    kind: str
    ancestor: Key | None = None
    filters: tuple[Filter, ...] = ()
    order: tuple[str, ...] = ()
    limit: int = 1_000
    cursor: bytes | None = None
    keys_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A query's answer. `cursor` goes on after it; None means that there is no more."""

    entities: tuple[Entity, ...]
    cursor: bytes | None


class Store(Protocol):
    async def get(self, keys: Sequence[Key]) -> Lookup:
        """Read up to LOOKUP_KEYS distinct keys, strongly consistent each; not one snapshot."""
        ...

    async def commit(self, writes: Sequence[Write]) -> Committed:
        """Apply all writes (each key at most once) or none.

        Raises Refused (a precondition did not hold; nothing written), Rejected (can never succeed; nothing written),
        Unavailable (may have been applied, or be applied later).
        """
        ...

    async def query(self, query: Query) -> Page: ...


class Outgoing(NamedTuple):
    data: bytes
    attributes: Mapping[str, str]


class Received(NamedTuple):
    """A delivered message. `message_id` names the message, `ack_id` this delivery; `publish_time` in µs."""

    ack_id: str
    message_id: str
    publish_time: int
    data: bytes
    attributes: Mapping[str, str]


class Publisher(Protocol):
    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        """Publish; return one message id a message, in order, once all are durable.

        At most 1,000 messages and 9,000,000 bytes. After an Unavailable any of them may have been published.
        """
        ...


class Puller(Protocol):
    """One subscription. A delivery not acknowledged within its deadline comes again, as a new ack id."""

    async def pull(self, max_messages: int) -> Sequence[Received]:
        """Wait a while for messages; an empty answer is normal. Cancelling it may lose the answer (it comes again)."""
        ...

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Settle up to ACK_IDS deliveries. An expired id may or may not do anything, and raises nothing."""
        ...

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        """Set the deadline of up to ACK_IDS deliveries to `seconds` from now; 0 gives them back at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTask:
    """A request to be sent by a push queue, at `at` (µs; None: now), again and again until it is answered with 2xx.

    `id` names it in its queue (one of our making: hashed). `deadline`: seconds until an attempt counts as failed.
    `audience` asks for an OIDC token with it; empty, there is none. `retry` overrides the queue's.
    """

    id: str
    url: str
    method: Literal["POST", "GET", "PUT", "HEAD", "DELETE", "PATCH"] = "POST"
    headers: Mapping[str, str]
    body: bytes = b""
    at: int | None = None
    deadline: float = 600.0
    audience: str = ""
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchStats:
    """A push queue's numbers; None where the service does not tell. `truncated`: `tasks` says "at least"."""

    tasks: int
    oldest_eta: int | None = None
    executed_last_minute: int | None = None
    in_flight: int | None = None
    enforced_rate: float | None = None
    paused: bool = False
    truncated: bool = False


class Dispatcher(Protocol):
    """Push queues: send requests at their time. Queues exist already, or are made by the first use (embedded)."""

    async def create(self, queue: str, task: HttpTask) -> None:
        """Add a task. Raises Refused, status ALREADY_EXISTS: the id is in the queue, or was a while ago.

        After an Unavailable it may be in; trying again by the same id is safe.
        """
        ...

    async def delete(self, queue: str, task_id: str) -> bool:
        """Remove a task; return False when there is none of that id."""
        ...

    async def run(self, queue: str, task_id: str) -> bool:
        """Send a task now, whatever its time and a pause of its queue say; return False when there is none of that id.

        One that is being sent may be sent a second time. A failure is followed by the next attempt as ever.
        """
        ...

    async def purge(self, queue: str) -> None:
        """Remove every task."""
        ...

    async def pause(self, queue: str) -> None: ...

    async def resume(self, queue: str) -> None: ...

    async def stats(self, queue: str) -> DispatchStats: ...

    async def close(self) -> None: ...


class CallerVerifier(Protocol):
    """Tells who calls, by the OIDC token that came along."""

    async def verify(self, token: str, audience: str) -> str:
        """Return the account's email address. Raises Forbidden when the token is not Google's or not for `audience`."""
        ...


class Backend(Protocol):
    """One of the ways to run: its ports, opened from the settings (`gcp.open`, `embedded.open`)."""

    store: Store
    publisher: Publisher

    def puller(self, subscription: str) -> Puller: ...

    async def prepare(self) -> None:
        """Create the settings' `channels` that are missing on an emulator and on embedded; do nothing on the cloud."""
        ...

    async def close(self) -> None: ...


async def read(store: Store, keys: Iterable[Key]) -> tuple[dict[Key, Entity], int | None]:
    """Read keys until none is deferred; return what exists, and the read time of the first answer.

    Raises Unavailable, as the store does. A key that is not in the result is missing for certain.
    """
    pending = list(keys)
    found: dict[Key, Entity] = {}
    read_time: int | None = None
    while pending:
        answer = await store.get(pending)
        found.update((entity.key, entity) for entity in answer.found)
        read_time = answer.read_time if read_time is None else read_time
        pending = list(answer.deferred)
    return found, read_time


async def pages(store: Store, query: Query) -> AsyncIterator[Page]:
    """Yield the pages of a query up to its last one; its limit is that of a page."""
    while True:
        page = await store.query(query)
        yield page
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
