"""What `tally worker` does beside working."""

import asyncio
import logging

import pytest
from click.testing import CliRunner

from tally.cli import main
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stream", "64"], "0<=x<=63"),
        (["--stream", "-1"], "0<=x<=63"),
        (["--stream", "1", "--queue", "mail"], "one or the other"),
    ],
)
def test_a_stream_that_cannot_be_or_beside_a_queue_is_refused(options: list[str], said: str) -> None:
    shown = CliRunner().invoke(main, ["worker", *options])
    assert shown.exit_code == 2
    assert said in shown.output
