import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import InvalidInput
from tally.limits import VOTER_BYTES
from tally.votes import ballot
from tally.votes.ballot import Hasher

VECTORS: list[dict[str, Any]] = json.loads(Path("tests/vectors.json").read_text(encoding="utf-8"))["ballots"]
KEY = bytes(range(32))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["note"]))
def test_the_vectors_for_other_languages_hold(vector: dict[str, Any]) -> None:
    hasher = Hasher(bytes.fromhex(vector["key"]), vector["poll"])
    made = hasher.ballot(vector["voter"], vector["index"])
    assert made.hex() == vector["ballot"]
    assert ballot.partition(made, vector["partitions"]) == vector["partition"]


@given(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9), st.text(min_size=1), st.text(min_size=1))
def test_no_two_pairs_of_poll_and_voter_share_a_ballot(poll: str, other_poll: str, voter: str, other: str) -> None:
    made = Hasher(KEY, poll).ballot(voter)
    assert len(made) == ballot.BYTES
    assert (made == Hasher(KEY, other_poll).ballot(other)) == ((poll, voter) == (other_poll, other))


def test_letters_that_move_between_poll_and_voter_make_another_ballot() -> None:
    assert Hasher(KEY, "ab").ballot("c") != Hasher(KEY, "a").ballot("bc")


def test_another_key_makes_another_ballot() -> None:
    assert Hasher(KEY, "lunch").ballot("ann") != Hasher(KEY[::-1], "lunch").ballot("ann")


def test_each_place_of_a_list_has_a_ballot_of_its_own_under_one_key() -> None:
    hasher = Hasher(KEY, "lunch")
    made = {hasher.ballot("k" * 16, index) for index in (None, *range(1_000))}
    assert len(made) == 1_001


def test_a_partition_is_the_big_endian_ballot_modulo_their_number() -> None:
    assert ballot.partition(bytes(15) + b"\x07", 4) == 3
    assert ballot.partition(b"\x01" + bytes(15), 256) == 0
    assert {ballot.partition(Hasher(KEY, "p").ballot(str(n)), 16) for n in range(500)} == set(range(16))


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as caught:
        act()
    return caught.value.message, caught.value.code


def test_a_one_ballot_poll_needs_a_voter() -> None:
    told = ("voter is missing: this poll takes one ballot a voter", "voter-missing")
    assert refusal(lambda: ballot.voter(None)) == told
    assert ballot.voter("Zu\u0308rich") == "Z\u00fcrich"
    assert ballot.voter("v" * VOTER_BYTES) == "v" * VOTER_BYTES
    told = (f"voter has {VOTER_BYTES + 1} bytes: want 1 to {VOTER_BYTES}", "bad-length")
    assert refusal(lambda: ballot.voter("v" * (VOTER_BYTES + 1))) == told


def test_neither_voter_nor_key_may_have_characters_without_a_normal_form() -> None:
    text = "k" * 16 + "\U0010ffff"
    assert refusal(lambda: ballot.voter(text))[1] == "bad-text"
    assert refusal(lambda: ballot.key(text))[1] == "bad-text"


def test_short_keys_are_refused_as_strangers_would_share_them() -> None:
    told = ("the idempotency key has 1 bytes: want 16 to 128", "bad-length")
    assert refusal(lambda: ballot.key("1")) == told
    assert ballot.key("k" * 16) == "k" * 16
