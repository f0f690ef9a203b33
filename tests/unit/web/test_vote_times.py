"""When votes are taken: from the opening to the end, an early one too."""

import asyncio
from typing import Any

import msgspec

from tally.clock import to_datetime
from tests.unit.web.conftest import Play, Stage


def test_the_end_is_checked_with_each_vote_and_needs_no_job(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        end = stage.clock.now() + 60_000_000
        await stage.poll(closes_at=to_datetime(end))
        await asyncio.sleep(59)
        assert (await stage.vote()).status == 202
        await asyncio.sleep(1)
        late = await stage.vote()
        assert (late.status, late.json["code"]) == (409, "poll-closed")
        assert len(stage.ballots) == 1

    play(scene)


def test_votes_before_the_opening_and_for_withdrawn_options_and_deleted_polls_are_refused(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.poll("later", opens_at=to_datetime(stage.clock.now() + 600_000_000))
        assert (await stage.vote(poll="later")).json["code"] == "poll-not-open"
        await stage.poll()
        changed = await stage.client.send("PATCH", "/v1/polls/lunch", {"revision": 1, "withdraw_options": ["red"]})
        assert changed.status == 200
        await asyncio.sleep(6)
        assert (await stage.vote("red")).json["code"] == "option-withdrawn"
        assert (await stage.vote("blue")).status == 202
        await stage.client.request("DELETE", "/v1/polls/lunch")
        await asyncio.sleep(6)
        assert (await stage.vote("blue")).json["code"] == "poll-deleted"

    play(scene)


def test_an_early_close_refuses_from_its_instant_on_in_every_process(play: Play) -> None:
    """Votes go on all the time: none stamped at or after the end is in the topic, whatever definition was held."""

    async def scene(stage: Stage) -> None:
        await stage.poll()
        closing: asyncio.Task[Any] | None = None
        end = None
        for number in range(200):
            await stage.vote(voter=f"v-{number}")
            if number == 50:
                closing = asyncio.create_task(stage.client.post("/v1/polls/lunch/close", None))
            await asyncio.sleep(0.1)
        assert closing is not None
        end = closing.result().json["closes_at"]
        stamps = [
            to_datetime(stamp)
            for message in stage.publisher.messages
            for group in msgspec.json.decode(message.data)["groups"]
            for stamp in group["accepted_at"]
        ]
        latest = msgspec.convert(end, type(stamps[0]))
        assert max(stamps) < latest
        assert (latest - max(stamps)).total_seconds() < 0.3

    play(scene)
