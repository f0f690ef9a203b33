"""Votes by two streams, through the real application on the fakes."""

from pathlib import Path
from random import Random

from tally import bootstrap, config
from tally.bootstrap import World
from tally.testing.backend import FakeBackend
from tally.testing.clock import VirtualClock
from tally.testing.loop import VirtualLoop
from tests.asgi import Client
from tests.unit.votes.pipeline import ballots_of, letters

VOTERS = [f"v-{number}" for number in range(40)]


def test_a_stream_whose_topic_is_missing_costs_503s_and_no_vote(
    tally_loop: VirtualLoop, tally_clock: VirtualClock, tmp_path: Path
) -> None:
    """A function that is told of a stream too early says no to its votes: none is accepted and gone."""
    settings = config.load({"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path), "TALLY_STREAMS": "2"})
    backend = FakeBackend(clock=tally_clock)

    async def main() -> None:
        await backend.prepare()
        site = bootstrap.whole_site(settings, backend, World(clock=tally_clock, random=Random(1)))
        client = Client(site.app)
        options = [{"id": "red"}, {"id": "blue"}]
        await client.post("/v1/polls", {"id": "p", "title": "P", "options": options, "partitions": 8})

        async def accepted() -> set[bytes]:
            replies = [await client.post("/v1/polls/p/votes", {"option": "red", "voter": voter}) for voter in VOTERS]
            assert {reply.status for reply in replies} <= {202, 503}
            return {bytes.fromhex(reply.json["ballot"]) for reply in replies if reply.status == 202}

        first = await accepted()
        assert 0 < len(first) < len(VOTERS)
        assert ballots_of(await letters(backend.puller("votes"))) == first
        backend.pubsub.create_topic("votes-1")
        backend.pubsub.create_subscription("votes-1", "votes-1")
        assert len(await accepted()) == len(VOTERS)
        assert ballots_of(await letters(backend.puller("votes"))) == first
        assert len(ballots_of(await letters(backend.puller("votes-1")))) == len(VOTERS) - len(first)
        await site.close()

    tally_loop.run(main())
