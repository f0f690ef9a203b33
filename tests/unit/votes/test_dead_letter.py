import pytest

from tally.clock import SECOND
from tally.ports import Outgoing, Received
from tally.votes import dead_letter
from tally.votes.dead_letter import parse, votes
from tests.unit.votes.letters import AT, refused, undecodable
from tests.unit.votes.pipeline import ballot


def test_a_letter_tells_its_reason_polls_votes_and_times() -> None:
    data, attributes = refused("p", "poll-closed", 3)
    letter = parse(Received("ack", "7", AT + 5, data, attributes))
    assert (letter.id, letter.reason, letter.message_id) == ("7", "poll-closed", "m-1")
    assert (letter.polls, letter.votes) == (("p",), 3)
    assert (letter.published_at, letter.died_at, letter.replayable) == (AT - SECOND, AT + 5, True)
    assert [(vote.option, vote.ballot, vote.accepted_at) for vote in votes(letter)] == [
        ("red", ballot("p", number).hex(), AT + number) for number in range(3)
    ]


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"groups":7}'])
def test_what_cannot_be_decoded_is_shown_and_not_replayable(data: bytes) -> None:
    for message in (undecodable(data), Outgoing(data, {})):
        letter = parse(Received("ack", "7", AT, message.data, message.attributes))
        assert (letter.votes, letter.polls, letter.replayable) == (0, (), False)
        assert list(votes(letter)) == []


@pytest.mark.parametrize("ballots", [b"!", b"a"])
def test_an_unsound_vote_is_shown_with_what_is_sound_in_it(ballots: bytes) -> None:
    group = b'{"poll":"p","options":["a"],"ballots":"%b","choices":[9,true,0],"accepted_at":["x",1,2]}' % ballots
    data = b'{"v":1,"groups":[%b]}' % group
    letter = parse(Received("ack", "7", AT, data, dead_letter.refused("m", AT, "bad-vote", data).attributes))
    assert [(vote.option, vote.ballot, vote.accepted_at) for vote in votes(letter)] == [
        (None, "", None),
        (None, "", 1),
        ("a", "", 2),
    ]
