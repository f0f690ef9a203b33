"""Votes in open polls: a key instead of a voter."""

import pytest

from tests.unit.web.conftest import KEY, VOTES, Play, Stage


def test_an_open_poll_without_a_key_counts_at_least_once_and_says_so(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(voters="open")
        reply = await stage.client.post(VOTES, {"option": "red"})
        assert (reply.status, reply.json["retry_safe"]) == (202, False)
        listed = await stage.client.post(VOTES, {"votes": [{"option": "red"}, {"option": "red", "id": KEY}]})
        assert [outcome.get("retry_safe", True) for outcome in listed.json["votes"]] == [False, True]

    play(scene)


def test_a_key_makes_an_open_vote_safe_to_send_again(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(voters="open")
        first = await stage.client.post(VOTES, {"option": "red"}, idempotency_key=KEY)
        second = await stage.client.post(VOTES, {"option": "red"}, idempotency_key=KEY)
        own = await stage.client.post(VOTES, {"option": "red", "id": KEY})
        assert first.json == second.json == own.json
        assert "retry_safe" not in first.json

    play(scene)


def test_a_list_under_one_key_has_a_ballot_for_each_place(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(voters="open")
        votes = {"votes": [{"option": "red"}] * 100}
        first = await stage.client.post(VOTES, votes, idempotency_key=KEY)
        second = await stage.client.post(VOTES, votes, idempotency_key=KEY)
        assert len({outcome["ballot"] for outcome in first.json["votes"]}) == 100
        assert first.json == second.json

    play(scene)


def test_a_votes_own_id_is_not_mixed_with_the_requests_key(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(voters="open")
        own = {"votes": [{"option": "red", "id": "i" * 16}]}
        with_header = await stage.client.post(VOTES, own, idempotency_key=KEY)
        without = await stage.client.post(VOTES, own)
        assert with_header.json == without.json

    play(scene)


@pytest.mark.parametrize("key", ["1", "k" * 15, "k" * 129, "k" * 15 + " ", "\u00e9"])
def test_a_weak_key_is_refused(play: Play, key: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(voters="open")
        reply = await stage.client.post(VOTES, {"option": "red"}, idempotency_key=key)
        assert reply.status == 400
        assert not stage.publisher.messages

    play(scene)


def test_a_voter_in_an_open_poll_is_refused_as_it_would_not_be_looked_at(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll(voters="open")
        assert (await stage.vote(voter="ann")).json["code"] == "unexpected-voter"

    play(scene)
