"""Streams: a stream is a topic, its subscription and the workers that pull it. One serves millions of votes a minute.

A vote's stream is a function of its poll and partition, the same in every process: so a partition is in the memory of
one stream's workers only. But a vote is exact on any stream, for the ledger's version guard keeps its commits apart:
functions that know of different numbers of streams may serve side by side.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from tally.limits import CACHED_POLLS
from tally.votes.microbatch import LINGER_SECONDS

LINGER_SECONDS_AT_MOST = 0.1


@dataclass(frozen=True, slots=True)
class Streams:
    """Those that votes are published to, by the names of their topics; their subscriptions are there already."""

    topics: tuple[str, ...]

    def topic(self, poll: str, partition: int) -> str:
        """Return the topic of a partition's votes; polls begin at different streams, so that small ones spread too."""
        if len(self.topics) == 1:
            return self.topics[0]
        return self.topics[(_offset(poll) + partition) % len(self.topics)]

    @property
    def linger_seconds(self) -> float:
        """How long a micro-batch stays open."""
        return linger_seconds(len(self.topics))


def linger_seconds(streams: int) -> float:
    """Return how long a micro-batch stays open: longer with more streams that share the votes, so that a message of
    each holds as many votes as one stream's would."""
    return min(LINGER_SECONDS * streams, LINGER_SECONDS_AT_MOST)


@lru_cache(CACHED_POLLS)
def _offset(poll: str) -> int:
    return int.from_bytes(blake2b(poll.encode(), digest_size=8).digest())
