from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tally import embedded
from tally.config import Settings, load
from tally.embedded.backend import SqliteBackend


class HandClock:
    """Stands still until a test moves it; read by the writer's thread too."""

    def __init__(self) -> None:
        self.at = 1_900_000_000_000_000

    def now(self) -> int:
        return self.at


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path)})


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def backend(
    settings: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SqliteBackend]:
    monkeypatch.setattr("tally.embedded.messages.PULL_SECONDS", 0.1)
    opened = await embedded.open(settings, clock)
    await opened.prepare()
    yield opened
    await opened.close()
