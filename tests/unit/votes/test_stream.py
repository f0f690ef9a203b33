from collections import Counter

import pytest

from tally.limits import STREAMS
from tally.votes.microbatch import LINGER_SECONDS
from tally.votes.stream import LINGER_SECONDS_AT_MOST, Streams

THREE = Streams(("votes", "votes-1", "votes-2"))


def test_one_stream_takes_all() -> None:
    one = Streams(("votes",))
    assert {one.topic(poll, partition) for poll in ("p", "q") for partition in range(256)} == {"votes"}


def test_the_partitions_of_a_poll_are_spread_evenly() -> None:
    spread = Counter(THREE.topic("p", partition) for partition in range(256))
    assert sorted(spread.values()) == [85, 85, 86]


def test_polls_of_one_partition_are_spread_too() -> None:
    spread = Counter(THREE.topic(f"poll-{number}", 0) for number in range(3_000))
    assert spread.keys() == set(THREE.topics)
    assert min(spread.values()) > 900


def test_the_stream_is_the_same_in_every_process() -> None:
    """Written down, so that a later version does not move partitions; and `hash` of a text differs by process."""
    names = [THREE.topic(poll, partition) for poll in ("p", "lunch", "a-poll") for partition in (0, 1)]
    assert [THREE.topics.index(name) for name in names] == [1, 2, 2, 0, 2, 0]


@pytest.mark.parametrize(("streams", "factor"), [(1, 1), (2, 2), (20, 20), (21, 20), (STREAMS, 20)])
def test_a_batch_stays_open_for_longer_with_more_streams_up_to_a_bound(streams: int, factor: int) -> None:
    linger = Streams(tuple(f"votes-{number}" for number in range(streams))).linger_seconds
    assert linger == pytest.approx(factor * LINGER_SECONDS)
    assert linger <= LINGER_SECONDS_AT_MOST
