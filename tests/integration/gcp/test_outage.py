"""A service that freezes or restarts: calls fail while it is away, and go on by themselves afterwards."""

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from emulator import google
from emulator.launch import run
from emulator.process import Process, Program
from tally import config, gcp
from tally.errors import Unavailable
from tally.gcp import clients
from tally.ports import Backend, Outgoing
from tests.conftest import Hosts


@pytest.fixture
def pubsub(emulators: Hosts, tmp_path: Path) -> Iterator[Process]:
    """Start a Pub/Sub emulator of the test's own, to be frozen and killed."""
    emulators("firestore-mode")  # skips or fails where it is not installed
    with run([google.pubsub()], log_dir=tmp_path) as (process,):
        yield process


@pytest.fixture
async def backend(emulators: Hosts, pubsub: Process, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Backend]:
    """Open a backend that notices a frozen service within two seconds instead of thirty."""
    quick = {"grpc.keepalive_time_ms": 1_000, "grpc.http2.ping_timeout_ms": 1_000}
    monkeypatch.setattr(clients, "_OPTIONS", tuple((dict(clients._OPTIONS) | quick).items()))
    hosts = emulators("firestore-mode") | {"PUBSUB_EMULATOR_HOST": pubsub.address}
    backend = await gcp.open(config.load({**hosts, "TALLY_PROJECT": f"outage-{uuid.uuid4().hex[:12]}"}))
    await backend.prepare()
    yield backend
    await backend.close()


async def pull_until(backend: Backend, data: bytes) -> None:
    puller = backend.puller("votes")
    async with asyncio.timeout(30):
        while True:
            try:
                received = await puller.pull(10)
            except Unavailable:
                await asyncio.sleep(0.1)
                continue
            if data in [message.data for message in received]:
                return


async def test_a_frozen_service_is_an_outage_and_no_idle_subscription(backend: Backend, pubsub: Process) -> None:
    pubsub.signal(signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable):
            async with asyncio.timeout(20):
                while True:
                    assert not await backend.puller("votes").pull(10)
    finally:
        pubsub.signal(signal.SIGCONT)
    await backend.publisher.publish("votes", [Outgoing(b"after", {})])
    await pull_until(backend, b"after")


async def test_a_restarted_service_is_found_again(backend: Backend, pubsub: Process, tmp_path: Path) -> None:
    await backend.publisher.publish("votes", [Outgoing(b"before", {})])
    pubsub.kill()
    with pytest.raises(Unavailable):
        await backend.puller("votes").pull(10)
    port = int(pubsub.address.rpartition(":")[2])
    program = google.pubsub()
    at_the_same_port = Program(name=program.name, command=lambda _port: program.command(port))
    again = Process(at_the_same_port, tmp_path)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    await backend.prepare()
                    break
                except Unavailable:
                    await asyncio.sleep(0.1)
        await backend.publisher.publish("votes", [Outgoing(b"after", {})])
        await pull_until(backend, b"after")
    finally:
        again.stop()
