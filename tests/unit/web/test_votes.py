from collections.abc import Callable

import msgspec

from tests.unit.web.conftest import Scene, Stage

Play = Callable[[Scene], None]


def test_an_accepted_vote_is_in_the_topic_before_its_answer(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        assert (await stage.poll()).status == 201
        reply = await stage.vote()
        assert reply.status == 202
        assert len(reply.json["ballot"]) == 32
        (message,) = await stage.messages()
        (group,) = msgspec.json.decode(message)["groups"]
        assert (group["poll"], group["options"], group["choices"]) == ("lunch", ["red"], [0])

    play(scene)
