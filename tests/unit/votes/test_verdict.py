import numpy as np
import pytest

from tally.clock import SECOND
from tally.ports import Received
from tally.votes import batch, decoder, verdict
from tally.votes.batch import Vote
from tally.votes.poll import GRACE, Option, Poll

NOW = 1_900_000_000 * SECOND
HOUR = 3_600 * SECOND
POLL = Poll(
    id="p",
    title="",
    options=(Option(id="red", label=""), Option(id="old", label="", withdrawn_at=NOW), Option(id="blue", label="")),
    created_at=0,
    partitions=4,
    key_version="1",
)


def judged(poll: Poll | None, at: int, option: str = "red", published: int | None = None) -> str:
    data = batch.encode([Vote("p", option, bytes(16), at)])
    (columns,) = decoder.decode([Received("", "", 0, data, {})]).columns
    verdicts, records = verdict.judge(poll, columns, np.array([at if published is None else published], np.uint64))
    if not verdicts[0]:
        assert poll is not None
        assert poll.options[records.options[0]].id == option
        assert records.accepted_at[0] == at
    return verdict.REASONS[verdicts[0]]


def changed(**changes: int) -> Poll:
    return Poll(**{name: getattr(POLL, name) for name in Poll.__struct_fields__} | changes)


@pytest.mark.parametrize(
    ("poll", "option", "edge", "reason"),
    [
        (changed(closes_at=NOW), "red", NOW + GRACE, "poll-closed"),
        (changed(deleted_at=NOW), "red", NOW + GRACE, "poll-deleted"),
        (POLL, "old", NOW + GRACE, "option-withdrawn"),
    ],
)
def test_a_late_vote_is_refused_only_past_the_grace(poll: Poll, option: str, edge: int, reason: str) -> None:
    assert judged(poll, edge, option) == ""
    assert judged(poll, edge + 1, option) == reason


def test_an_early_vote_is_refused_only_before_the_grace() -> None:
    poll = changed(opens_at=NOW)
    assert judged(poll, NOW - GRACE) == ""
    assert judged(poll, NOW - GRACE - 1) == "poll-not-open"


def test_the_stamp_must_lie_near_its_publication() -> None:
    assert judged(POLL, NOW, published=NOW + HOUR) == ""
    assert judged(POLL, NOW, published=NOW + HOUR + 1) == "accepted-at-out-of-range"
    assert judged(POLL, NOW, published=NOW - 60 * SECOND) == ""
    assert judged(POLL, NOW, published=NOW - 60 * SECOND - 1) == "accepted-at-out-of-range"


def test_seconds_or_the_year_9999_for_microseconds_are_refused() -> None:
    assert judged(POLL, NOW // SECOND, published=NOW) == "accepted-at-out-of-range"
    assert judged(POLL, 2**54 - 1, published=NOW) == "accepted-at-out-of-range"


def test_unknown_polls_and_options_are_refused() -> None:
    assert judged(None, NOW) == "unknown-poll"
    assert judged(POLL, NOW, "green") == "unknown-option"
    assert judged(POLL, NOW, "blue") == ""


def test_votes_of_an_unknown_poll_keep_their_columns() -> None:
    data = batch.encode([Vote("p", "red", bytes(range(16)), NOW)])
    (columns,) = decoder.decode([Received("", "", 0, data, {})]).columns
    verdicts, records = verdict.judge(None, columns, np.array([NOW], np.uint64))
    assert verdicts.dtype == np.uint8
    assert records.high is columns.high
    assert records.low is columns.low
    assert len(records) == 1


def test_a_poll_of_one_option_refuses_another() -> None:
    alone = Poll(id="p", title="", options=POLL.options[:1], created_at=0, partitions=4, key_version="1")
    assert judged(alone, NOW, "green") == "unknown-option"
    assert judged(alone, NOW) == ""


def test_instants_are_compared_to_the_microsecond_even_past_what_a_float_holds() -> None:
    late = 2**53 + 2 * GRACE
    options = (Option(id="old", label="", withdrawn_at=late - GRACE),)
    made = Poll(id="p", title="", options=options, created_at=0, partitions=4, key_version="1")
    assert judged(made, late, "old") == ""
    assert judged(made, late + 1, "old") == "option-withdrawn"
