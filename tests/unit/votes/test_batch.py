"""The wire form of votes, and the columns that a worker takes them as."""

import numpy as np
from hypothesis import given

from tally.votes import batch, decoder
from tally.votes.batch import Vote
from tests.unit.votes.test_decoder import AT, at, ballot, message, option, taken, vote, votes


@given(votes)
def test_columns_become_a_message_again(content: list[Vote]) -> None:
    decoded = decoder.decode([message(batch.encode(content))])
    again = decoder.decode([message(columns.encode()) for columns in decoded.columns])
    assert sorted(made for _, made in taken(again)) == sorted(content)


def test_wire_form_is_the_documented_one() -> None:
    data = batch.encode([vote(1), vote(2, option="blue", at=AT + 1), vote(3, "q")])
    first = '{"poll":"p","options":["red","blue"],"ballots":"AAAAAAAAAAAAAAAAAAAAAQAAAAAAAAAAAAAAAAAAAAI="'
    assert data.decode().startswith('{"v":1,"groups":[' + first + f',"choices":[0,1],"accepted_at":[{AT},{AT + 1}]}},')


def test_rows_of_columns_are_chosen_alike() -> None:
    content = [vote(number, option="ab"[number % 2], at=AT + number) for number in range(4)]
    (columns,) = decoder.decode([message(batch.encode(content))], first=3).columns
    chosen = columns.rows(np.array([True, False, False, True]))
    assert (chosen.poll, chosen.options, len(chosen)) == ("p", ("a", "b"), 2)
    made = [Vote(chosen.poll, option(chosen, row), ballot(chosen, row), at(chosen, row)) for row in range(2)]
    assert made == [content[0], content[3]]
    assert chosen.owner.tolist() == [3, 3]
