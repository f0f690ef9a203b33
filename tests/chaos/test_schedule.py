"""The plan of a round: the same for the same seed, and with what every round must show."""

import itertools
from random import Random

import pytest

from tally.limits import ACK_DEADLINE_SECONDS
from tests.chaos import schedule


@pytest.mark.parametrize("first", ["kill", "terminate", "freeze"])
def test_a_process_suffers_the_first_deed_for_certain_and_one_thing_at_a_time(first: schedule.Deed) -> None:
    for seed in range(200):
        actions = schedule.of_process(Random(seed), first, 8.0)
        assert actions == schedule.of_process(Random(seed), first, 8.0)
        assert actions[0].deed == first
        for action, following in itertools.pairwise(actions):
            assert action.at + action.seconds < following.at < 8.0


def test_a_long_freeze_outlasts_the_ack_deadline_and_no_other_does() -> None:
    for seed in range(200):
        first, *others = schedule.of_process(Random(seed), "freeze", 40.0, long=True)
        assert first.seconds > ACK_DEADLINE_SECONDS
        assert max((other.seconds for other in others), default=0) < ACK_DEADLINE_SECONDS


def test_each_service_is_out_of_reach_once() -> None:
    outages = schedule.of_services(Random(1), ["pubsub", "datastore"], 8.0)
    assert [outage.deed for outage in outages] == ["pubsub", "datastore"]
    assert all(0 < outage.at < 8.0 and outage.seconds > 0 for outage in outages)
