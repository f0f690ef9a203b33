"""The five-second test before the suites: write, read, publish, pull. It says which emulator is broken, and at what."""

import asyncio
import uuid
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tally import config, gcp
from tally.errors import BackendError
from tally.ports import Backend, Entity, Insert, Outgoing

T = TypeVar("T")
SECONDS = 5.0


class Broken(Exception):
    """An emulator does not do what the suites need."""


def check(hosts: Mapping[str, str]) -> None:
    """Raise Broken, naming the emulator and the step, unless both work. May be called where an event loop runs."""
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(asyncio.run, _check(hosts)).result()


async def _check(hosts: Mapping[str, str]) -> None:
    settings = config.load({**hosts, "TALLY_BACKEND": "emulator", "TALLY_PROJECT": f"smoke-{uuid.uuid4().hex[:12]}"})
    backend = await gcp.open(settings)
    datastore = f"the Datastore emulator at {settings.datastore_emulator}"
    pubsub = f"the Pub/Sub emulator at {settings.pubsub_emulator}"
    try:
        await _datastore(backend, datastore)
        await _pubsub(backend, pubsub)
    finally:
        await backend.close()


async def _datastore(backend: Backend, name: str) -> None:
    key = (("Smoke", "test"),)
    await _step(f"{name}: write", backend.store.commit([Insert(Entity(key=key, properties={"n": 1}))]))
    read = await _step(f"{name}: read", backend.store.get([key]))
    if [dict(entity.properties) for entity in read.found] != [{"n": 1}]:
        raise Broken(f"{name}: read {read.found!r} instead of what was written")


async def _pubsub(backend: Backend, name: str) -> None:
    await _step(f"{name}: create a topic and a subscription", backend.prepare())
    await _step(f"{name}: publish", backend.publisher.publish("votes", [Outgoing(b"smoke", {})]))
    received = await _step(f"{name}: pull", backend.puller("votes").pull(1))
    if [message.data for message in received] != [b"smoke"]:
        raise Broken(f"{name}: pulled {received!r} instead of what was published")


async def _step(what: str, call: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(SECONDS):
            return await call
    except (BackendError, TimeoutError) as error:
        raise Broken(f"{what}: {error or 'no answer'}") from error
