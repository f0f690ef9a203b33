"""Lists of votes in one request: an outcome for each, in order."""

import asyncio

import msgspec

from tally.errors import Unavailable
from tests.unit.web.conftest import VOTES, Play, Stage


def test_a_list_has_one_outcome_a_vote_in_order(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        votes = [
            {"option": "red", "voter": "a"},
            {"option": "green", "voter": "b"},
            {"option": "blue", "voter": " "},
            {"option": "blue", "voter": "d"},
        ]
        reply = await stage.client.post(VOTES, {"votes": votes})
        assert reply.status == 207
        outcomes = reply.json["votes"]
        assert [outcome["status"] for outcome in outcomes] == [202, 400, 400, 202]
        assert [outcome.get("code") for outcome in outcomes] == [None, "unknown-option", "bad-text", None]
        assert [ballot for _, _, ballot in stage.ballots] == [outcomes[0]["ballot"], outcomes[3]["ballot"]]

    play(scene)


def test_a_list_of_good_votes_is_accepted_in_one_message(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        votes = [{"option": "red", "voter": f"v-{number}"} for number in range(1_000)]
        reply = await stage.client.post(VOTES, {"votes": votes})
        assert reply.status == 202
        assert len({outcome["ballot"] for outcome in reply.json["votes"]}) == 1_000
        assert len(stage.publisher.messages) == 1
        single = await stage.vote(voter="v-7")
        assert single.json["ballot"] == reply.json["votes"][7]["ballot"]

    play(scene)


def test_a_list_that_was_not_confirmed_is_503_whole_and_safe_to_send_again(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        votes = {"votes": [{"option": "red", "voter": "a"}, {"option": "green", "voter": "b"}]}
        stage.publisher.after = Unavailable("reply lost")
        failed = await stage.client.post(VOTES, votes)
        assert (failed.status, 1 <= int(failed.headers["retry-after"]) <= 5) == (503, True)
        stage.publisher.after = None
        assert [outcome["status"] for outcome in (await stage.client.post(VOTES, votes)).json["votes"]] == [202, 400]
        assert len(stage.ballots) == 2
        assert len(set(stage.ballots)) == 1

    play(scene)


def test_a_list_for_a_closed_poll_has_an_outcome_for_each_vote(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        await stage.client.post("/v1/polls/lunch/close", None)
        await asyncio.sleep(6)
        reply = await stage.client.post(VOTES, {"votes": [{"option": "red", "voter": "a"}] * 2})
        assert reply.status == 207
        assert [(outcome["status"], outcome["code"]) for outcome in reply.json["votes"]] == [(409, "poll-closed")] * 2
        assert not stage.publisher.messages

    play(scene)


def test_votes_of_a_list_have_stamps_that_increase(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll()
        await stage.client.post(VOTES, {"votes": [{"option": "red", "voter": f"v-{number}"} for number in range(50)]})
        await asyncio.gather(*[stage.vote(voter=f"w-{number}") for number in range(50)])
        stamps = [
            stamp
            for message in stage.publisher.messages
            for group in msgspec.json.decode(message.data)["groups"]
            for stamp in group["accepted_at"]
        ]
        assert len(stamps) == 100
        assert stamps == sorted(set(stamps))

    play(scene)
