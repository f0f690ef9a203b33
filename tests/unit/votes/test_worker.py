from tally.testing.loop import VirtualLoop
from tests.unit.votes.pipeline import Pipeline, poll, votes


def test_every_vote_counts_once_however_many_copies_arrive(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, made = Pipeline(), poll()
        await pipeline.prepare(made)
        now = pipeline.clock.now()
        await pipeline.publish(votes(made, range(1_000), now))
        await pipeline.publish(votes(made, range(500), now), size=1)
        assert await pipeline.drain(workers=2) == [0, 0]
        assert await pipeline.totals(made) == {"red": 500, "blue": 500}
        assert await pipeline.dead_letters() == []

    tally_loop.run(main())
