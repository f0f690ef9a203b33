"""Tasks in transactions of the official Datastore client, on both emulators."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from google.cloud import datastore

from emulator import google
from tally import config
from tally.bootstrap import open_backend
from tally.clock import SystemClock
from tally.errors import Conflict
from tally.gcp.outbox import add
from tally.ports import Backend
from tally.tasks.outbox import Outbox
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task
from tests.conftest import Hosts

PROJECT = f"outbox-{uuid4().hex[:12]}"


@pytest.fixture(params=["firestore-mode", "firestore"])
async def backend(
    request: pytest.FixtureRequest, emulators: Hosts, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Backend]:
    flavour: google.Flavour = request.param
    hosts = emulators(flavour)
    monkeypatch.setenv("DATASTORE_EMULATOR_HOST", hosts["DATASTORE_EMULATOR_HOST"])
    backend = await open_backend(config.load({**hosts, "TALLY_BACKEND": "emulator", "TALLY_PROJECT": PROJECT}))
    yield backend
    await backend.close()


@pytest.fixture
def client(backend: Backend) -> Any:
    return datastore.Client(project=PROJECT)


def order(client: Any, name: str) -> Any:
    return datastore.Entity(client.key("Order", name))


async def test_a_task_exists_if_and_only_if_the_clients_transaction_commits(backend: Backend, client: Any) -> None:
    queue = PullQueue(backend.store, f"q-{uuid4().hex[:8]}", clock=SystemClock())
    box = Outbox(backend.store, lambda _: queue, clock=SystemClock(), random=Random())

    def sell(name: str, *, fail: bool) -> str:
        with client.transaction():
            client.put(order(client, name))
            entry = add(client, queue.name, Task.json({"ship": name}, tag="ship"))
            if fail:
                raise RuntimeError("out of stock")
            return entry

    sold = await asyncio.to_thread(sell, "a", fail=False)
    with pytest.raises(RuntimeError, match="out of stock"):
        await asyncio.to_thread(sell, "b", fail=True)
    assert await box.drain([sold]) == 1
    assert await box.drain([sold]) == 0
    (lease,) = await queue.lease(10)
    assert (lease.task.value(), lease.task.tag) == ({"ship": "a"}, "ship")
    await queue.complete(lease)
    assert await box.sweep() == 0


async def test_the_sweeper_adds_what_no_committer_drained(backend: Backend, client: Any) -> None:
    class Later(SystemClock):
        def now(self) -> int:
            return super().now() + 10_000_000

    queue = PullQueue(backend.store, f"q-{uuid4().hex[:8]}", clock=SystemClock())
    box = Outbox(backend.store, lambda _: queue, clock=Later(), random=Random())
    with client.transaction():
        add(client, queue.name, Task.text("left"))
    assert await box.sweep() == 1
    assert (await queue.lease(10))[0].task.value() == "left"


async def test_outside_a_transaction_adding_is_refused(backend: Backend, client: Any) -> None:
    with pytest.raises(Conflict, match="no transaction"):
        add(client, "q", Task())
    transaction = client.transaction()
    transaction.begin()
    with pytest.raises(Conflict, match="no transaction"):
        add(client, "q", Task())
    transaction.rollback()
