"""Embedded's push tasks in the store: the entities of a task, of its tombstone, and of a queue's settings."""

from dataclasses import replace

import msgspec

from tally.clock import SECOND
from tally.ports import Entity, HttpTask, Key, OnConflict, Update, Value
from tally.tasks.entry import Entry

TASK, QUEUE, LOOP = "PushTask", "PushQueue", "PushLoop"
TOMBSTONE = 3_600 * SECOND
GONE = 1 << 62  # the eta of a tombstone is this and the instant of its end: never due, and in order for the sweep
PAGE = 200


def to_entity(queue: str, task: HttpTask, entry: Entry) -> Entity:
    properties: dict[str, Value] = {
        "queue": queue,
        "eta": entry.eta,
        "gone": 0,
        "forced": 0,
        "task": msgspec.json.encode(replace(task, body=b"")),
        "body": task.body,
        "entry": msgspec.json.encode(replace(entry, payload=b"", retry=task.retry)),
    }
    return Entity(key=task_key(queue, task.id), properties=properties, indexed=frozenset({"eta"}))


def tombstone(queue: str, task_id: str, now: int) -> Entity:
    properties: dict[str, Value] = {"queue": queue, "eta": GONE + now, "gone": now}
    return Entity(key=task_key(queue, task_id), properties=properties, indexed=frozenset({"eta"}))


def forced(entity: Entity, now: int) -> Entity:
    """Return a task as one that is to be sent now, whatever its queue's schedule says."""
    return replace(entity, properties={**entity.properties, "eta": now, "forced": 1})


def update(entity: Entity, version: int) -> Update:
    return Update(entity=entity, base_version=version, on_conflict=OnConflict.FAIL)


def task_of(entity: Entity) -> HttpTask:
    return replace(msgspec.json.decode(_bytes(entity, "task"), type=HttpTask), body=_bytes(entity, "body"))


def entry_of(entity: Entity) -> Entry:
    return replace(msgspec.json.decode(_bytes(entity, "entry"), type=Entry), eta=number(entity, "eta"))


def _bytes(entity: Entity, name: str) -> bytes:
    value = entity.properties[name]
    return value if isinstance(value, bytes) else b""


def number(entity: Entity, name: str) -> int:
    value = entity.properties.get(name)
    return value if isinstance(value, int) else 0


def queue_of(entity: Entity) -> str:
    return str(entity.properties["queue"])


def task_id_of(entity: Entity) -> str:
    return str(entity.key[0][1]).partition(":")[2]


def task_key(queue: str, task_id: str) -> Key:
    return ((TASK, f"{queue}:{task_id}"),)


def queue_key(queue: str) -> Key:
    return ((QUEUE, queue),)
