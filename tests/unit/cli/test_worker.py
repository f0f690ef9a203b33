"""What `tally worker` does beside working."""

import asyncio
import logging

import pytest
from click.testing import CliRunner

from tally import config
from tally.cli import main
from tally.cli.worker import HEALTH_SECONDS, log_ill_health, warn_of_idle_stream
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
        (["--strict"], "name their queues by --queue"),
        (["--concurrency", "4:100"], "name their queues by --queue"),
        (["--concurrency", "4-8", "--queue", "mail"], "want MIN:MAX"),
    ],
)
def test_a_stream_that_cannot_be_and_options_that_would_do_nothing_are_refused(options: list[str], said: str) -> None:
    shown = CliRunner().invoke(main, ["worker", *options])
    assert shown.exit_code == 2
    assert said in shown.output


@pytest.mark.parametrize(("stream", "warned"), [("0", False), ("1", False), ("2", True), ("5", True)])
def test_a_stream_that_nobody_publishes_to_is_warned_of(
    caplog: pytest.LogCaptureFixture, stream: str, warned: bool
) -> None:
    with caplog.at_level(logging.WARNING, "tally"):
        warn_of_idle_stream(config.load({"TALLY_STREAMS": "2", "TALLY_STREAM": stream}))
    assert [record.getMessage() for record in caplog.records] == ["stream-gets-no-votes"] * warned


@pytest.mark.parametrize(("options", "warnings"), [([], 1), (["--until-empty"], 0)])
def test_draining_a_stream_that_was_given_up_is_no_reason_to_warn(options: list[str], warnings: int) -> None:
    environ = {"TALLY_BACKEND": "embedded", "TALLY_STATE": "/dev/null"}  # it ends as soon as it looks for the store
    ended = CliRunner().invoke(main, ["worker", "--port", "0", "--stream", "5", *options], env=environ)
    assert ended.exit_code == 1
    assert ended.output.count("stream-gets-no-votes") == warnings
