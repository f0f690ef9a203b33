"""The backends that every conformance test runs on, under the same test ids: what holds on one holds on all.

Each test has a backend of its own (a fresh project, file or fake), so the suites may run in any order and repeatedly on
one emulator without a reset. The topic `votes` has two subscriptions, `votes` and `copy`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tally import config
from tally.bootstrap import open_backend
from tally.clock import SystemClock
from tally.config import Settings
from tally.ports import Backend, Publisher, Puller, Store
from tally.testing.backend import FakeBackend
from tests.backends import BACKENDS, FLAVOURS
from tests.conftest import Hosts

TOPIC, SUBSCRIPTION, COPY = "votes", "votes", "copy"


@dataclass(frozen=True, slots=True)
class Target:
    """One of BACKENDS by name, and the settings that open it."""

    name: str
    settings: Settings


@pytest.fixture(params=BACKENDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    name: str = request.param
    environ = {
        "TALLY_BACKEND": "embedded",
        "TALLY_PROJECT": f"conformance-{uuid4().hex[:12]}",
        "TALLY_STATE": str(tmp_path),
        "TALLY_TOPIC": TOPIC,
        "TALLY_SUBSCRIPTION": SUBSCRIPTION,
        # What prepare() makes is two subscriptions: here both of one topic.
        "TALLY_DEAD_LETTER_TOPIC": TOPIC,
        "TALLY_DEAD_LETTER_SUBSCRIPTION": COPY,
    }
    if name in FLAVOURS:
        hosts: Hosts = request.getfixturevalue("emulators")
        environ |= hosts(FLAVOURS[name]) | {"TALLY_BACKEND": "emulator"}
    return Target(name, config.load(environ))


@pytest.fixture
async def backend(target: Target) -> AsyncIterator[Backend]:
    backend = _fake() if target.name == "fake" else await open_backend(target.settings)
    await backend.prepare()
    yield backend
    await backend.close()


def _fake() -> Backend:
    fake = FakeBackend(clock=SystemClock())
    fake.pubsub.create_topic(TOPIC)
    fake.pubsub.create_subscription(COPY, TOPIC)
    return fake


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def publisher(backend: Backend) -> Publisher:
    return backend.publisher


@pytest.fixture
def puller(backend: Backend) -> Puller:
    return backend.puller(SUBSCRIPTION)
