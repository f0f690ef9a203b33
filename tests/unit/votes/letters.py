"""Dead letters as a worker makes them."""

from tally.clock import SECOND
from tally.ports import Outgoing, Received
from tally.votes import dead_letter
from tally.votes.batch import Vote, encode
from tests.unit.votes.pipeline import ballot

AT = 1_900_000_000_000_000


def refused(poll: str, reason: str, count: int = 2, first: int = 0) -> Outgoing:
    data = encode(Vote(poll, "red", ballot(poll, first + number), AT + number) for number in range(count))
    return dead_letter.refused("m-1", AT - SECOND, reason, data)


def undecodable(data: bytes) -> Outgoing:
    return dead_letter.undecodable(Received("a", "m-2", AT, data, {}), "undecodable", data)
