"""What `tally worker` does beside working."""

import asyncio
import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from tally import config
from tally.cli import main
from tally.cli.worker import (
    HEALTH_SECONDS,
    log_ill_health,
    refuse_absent_stream,
    stopped_by_signals,
    warn_of_idle_stream,
)
from tally.errors import ConfigError, Refused, Unavailable
from tally.ports import Received
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


@pytest.fixture
def signals() -> Iterator[None]:
    """Leave the signals as they are found."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("sent", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
@pytest.mark.usefixtures("signals")
def test_a_first_signal_stops_a_second_one_stops_at_once_and_a_third_one_would_kill(sent: list[int]) -> None:
    async def main() -> None:
        at_once = asyncio.Event()
        stop = stopped_by_signals(at_once)
        signal.raise_signal(sent[0])
        await asyncio.wait_for(stop.wait(), 5)
        assert not at_once.is_set()
        signal.raise_signal(sent[1])
        await asyncio.wait_for(at_once.wait(), 5)
        assert {signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)} == {signal.SIG_DFL}

    asyncio.run(main())


@pytest.mark.usefixtures("signals")
def test_a_worker_of_votes_lets_a_second_signal_change_nothing() -> None:
    async def main() -> None:
        stop = stopped_by_signals()
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 5)
            await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL

    asyncio.run(main())


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


class Looked:
    """A puller whose one Pull answers, or fails, as it is told."""

    def __init__(self, answer: Sequence[Received] | Exception) -> None:
        self._answer = answer
        self.given_back: list[str] = []

    async def pull(self, max_messages: int) -> Sequence[Received]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        raise AssertionError("a look takes nothing")

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        assert seconds == 0
        self.given_back += ack_ids


NOWHERE = Refused("no such subscription", status="NOT_FOUND")
WAITING = (Received(ack_id="a", message_id="m", publish_time=0, data=b"", attributes={}),)


@pytest.mark.parametrize(
    ("stream", "answer", "refused"),
    [
        ("5", NOWHERE, True),
        ("2", NOWHERE, True),
        ("1", NOWHERE, False),  # functions publish to it: what deploys it may be on its way
        ("5", (), False),
        ("5", WAITING, False),
        ("5", Unavailable("an outage", status="UNAVAILABLE"), False),
    ],
)
async def test_a_stream_that_is_not_there_and_that_nobody_publishes_to_is_refused(
    stream: str, answer: Sequence[Received] | Exception, refused: bool
) -> None:
    settings = config.load({"TALLY_STREAMS": "2", "TALLY_STREAM": stream})
    puller = Looked(answer)
    with pytest.raises(ConfigError, match=f"no stream {stream}.*TALLY_STREAMS=2") if refused else nullcontext():
        await refuse_absent_stream(settings, puller)
    assert puller.given_back == (["a"] if answer == WAITING else [])


def test_a_mistyped_stream_is_not_made(tmp_path: Path) -> None:
    environ = {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path)}
    ended = CliRunner().invoke(main, ["worker", "--port", "0", "--stream", "5", "--until-empty"], env=environ)
    assert (ended.exit_code, "there is no stream 5" in ended.output) == (1, True)
    assert "stream 5" not in CliRunner().invoke(main, ["doctor"], env=environ).output
