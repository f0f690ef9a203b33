"""Real backends, and a worker in the test's own loop that waits less for what takes no time on this machine."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from emulator import google
from tally import bootstrap, config
from tally.config import Settings
from tally.ports import Backend
from tests.conftest import Hosts

FLAVOURS: dict[str, google.Flavour] = {"emulator-datastore": "firestore-mode", "emulator-firestore": "firestore"}


@pytest.fixture(params=["embedded", *FLAVOURS])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    environ = {"TALLY_BACKEND": "embedded", "TALLY_PROJECT": f"votes-{uuid4().hex[:12]}", "TALLY_STATE": str(tmp_path)}
    if request.param in FLAVOURS:
        hosts: Hosts = request.getfixturevalue("emulators")
        environ |= hosts(FLAVOURS[request.param]) | {"TALLY_BACKEND": "emulator"}
    return config.load(environ)


@pytest.fixture
async def backend(settings: Settings) -> AsyncIterator[Backend]:
    opened = await bootstrap.open_backend(settings)
    await opened.prepare()
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the worker's pauses, its wait for idle pulls at its end, and embedded's (an emulator's takes 4 s)."""
    for name, seconds in {
        "embedded.messages.PULL_SECONDS": 0.3,
        "votes.lane.PERIOD": 0.2,
        "votes.lane._BACKOFF_BASE": 0.05,
        "votes.lane._PARK_BASE": 0.5,
        "votes.worker.PULLS_END": 0.1,
    }.items():
        monkeypatch.setattr(f"tally.{name}", seconds)
