"""What `tally worker` does beside working."""

import asyncio
import logging

import pytest

from tally.cli.worker import HEALTH_SECONDS, log_ill_health
from tally.testing.loop import VirtualLoop
from tally.votes.worker import Health


def test_ill_health_is_logged_for_as_long_as_it_lasts(
    caplog: pytest.LogCaptureFixture, tally_loop: VirtualLoop
) -> None:
    states = iter([True, False, False, True])

    def health() -> Health:
        return Health(ok=next(states), body={"stuck_seconds": 31})

    async def watch() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(HEALTH_SECONDS * 4 + 1):
                await log_ill_health(health)

    with caplog.at_level(logging.INFO, "tally"):
        tally_loop.run(watch())
    assert [record.getMessage() for record in caplog.records] == ["worker-unhealthy"] * 2
    assert all(record.levelno == logging.ERROR for record in caplog.records)
