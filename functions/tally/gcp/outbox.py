"""Tasks inside a transaction of the official `google.cloud.datastore` client: they exist if and only if it commits.

    with client.transaction():
        client.put(order)
        entry = add(client, "mail", Task.json({"to": 7}))
    await outbox.drain([entry])          # now; or leave it to the sweeper

The task waits in an outbox entity of the same transaction; tasks/outbox.py adds it to its queue.
"""

from random import Random, SystemRandom
from typing import Any

from google.cloud import datastore

from tally.clock import Clock, SystemClock
from tally.errors import Conflict
from tally.ports import Entity
from tally.tasks.outbox import entry
from tally.tasks.task import Task


def add(client: Any, queue: str, task: Task, *, clock: Clock | None = None, random: Random | None = None) -> str:
    """Put a task into the client's current transaction; return the id of its outbox entry.

    Raises Conflict outside `with client.transaction():`, where a put would be a commit of its own.
    """
    transaction = client.current_transaction
    if transaction is None:
        raise Conflict("no transaction is current: add tasks inside `with client.transaction():`")
    made = entry(queue, task, clock=clock or SystemClock(), random=random or SystemRandom())
    transaction.put(_entity(client, made.write.entity))
    return made.id


def _entity(client: Any, entity: Entity) -> Any:
    unindexed = tuple(name for name in entity.properties if name not in entity.indexed)
    made = datastore.Entity(client.key(*entity.key[0]), exclude_from_indexes=unindexed)
    made.update(entity.properties)
    return made
