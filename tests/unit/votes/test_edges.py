"""Functions and a worker together at a poll's edges, with clocks off and definitions old: no 202 is a dead letter."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random

import msgspec
import pytest

from tally.clock import SECOND
from tally.errors import Busy, Unavailable, VoteRefused
from tally.ports import Outgoing, Upsert
from tally.testing.clock import EPOCH, VirtualClock
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.votes import batch
from tally.votes.edit import Patch
from tally.votes.intake import Cast
from tally.votes.poll import GRACE, Poll
from tally.votes.polls import Polls, to_entity
from tally.votes.recount import recount
from tests.unit.votes.pipeline import Function, Pipeline, ballots, ballots_of, poll, votes

MOST = 19.9  # seconds: just within the bound of the guarantee
BEGIN, LENGTH = 25, 48  # seconds from the start to the change, and of the voting
Change = Callable[[Polls], Awaitable[object]]


async def _nothing(polls: Polls) -> None:
    """Leave it to the definition's own times."""


async def _close(polls: Polls) -> None:
    await polls.close("p")


async def _delete(polls: Polls) -> None:
    await polls.delete("p")


async def _withdraw(polls: Polls) -> None:
    await polls.amend("p", Patch(revision=1, withdraw_options=("red",)))


async def _end_earlier(polls: Polls) -> None:
    await polls.amend("p", Patch(revision=1, closes_at=EPOCH + round((BEGIN + MOST + 5.2) * SECOND)))


CHANGES: Mapping[str, tuple[Change, dict[str, int], str]] = {
    "opening": (_nothing, {"opens_at": EPOCH + BEGIN * SECOND}, "poll-not-open"),
    "end": (_nothing, {"closes_at": EPOCH + BEGIN * SECOND}, "poll-closed"),
    "earlier end": (_end_earlier, {"closes_at": EPOCH + 86_400 * SECOND}, "poll-closed"),
    "close": (_close, {}, "poll-closed"),
    "deletion": (_delete, {}, "poll-deleted"),
    "withdrawal": (_withdraw, {}, "option-withdrawn"),
}


class Booth:
    """A function, and voters that come to it five times a second; they do not try again."""

    def __init__(self, pipeline: Pipeline, skew: float, name: str) -> None:
        self.clock = VirtualClock(skew=round(skew * SECOND))
        self.plan = Plan(Random(name), {}, latency=0.01)
        self.function = Function(pipeline.backend.store, pipeline.backend.pubsub, self.clock, self.plan)
        self.accepted: set[bytes] = set()
        self.outcomes: Counter[str] = Counter()
        self.last = ""
        self._name = name

    async def open(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(round(seconds * 5)):
                group.create_task(self._vote(f"{self._name}-{number}"))
                await asyncio.sleep(0.2)

    async def _vote(self, voter: str) -> None:
        try:
            receipt = await self.function.intake.vote("p", Cast(option="red", voter=voter), None)
        except (VoteRefused, Busy) as error:
            self.last = error.code
        else:
            self.accepted.add(receipt.ballot)
            self.last = "accepted"
        self.outcomes[self.last] += 1


async def judge(pipeline: Pipeline, made: Poll, booths: list[Booth]) -> None:
    """See that what was accepted is counted, once, and in no dead letter."""
    accepted = set[bytes]().union(*(booth.accepted for booth in booths))
    assert accepted
    counted = await recount(pipeline.store, made)
    assert not counted.differences
    assert accepted <= ballots(counted.records)
    assert not accepted & ballots_of(await pipeline.dead_letters())


@pytest.mark.parametrize("worker_comes_late", [False, True], ids=["worker there", "worker late"])
@pytest.mark.parametrize("admin_skew", [-MOST, MOST])
@pytest.mark.parametrize("change", CHANGES)
def test_no_accepted_vote_is_refused_later(
    tally_loop: VirtualLoop, change: str, admin_skew: float, worker_comes_late: bool
) -> None:
    """One function is behind, one ahead and cannot read the change for as long as its definition serves."""
    alter, fields, code = CHANGES[change]

    async def main() -> None:
        pipeline, made = Pipeline(), msgspec.structs.replace(poll(partitions=2), **fields)
        await pipeline.prepare(made)
        booths = [Booth(pipeline, -MOST, "behind"), Booth(pipeline, MOST, "ahead")]
        admin = Polls(pipeline.store, VirtualClock(skew=round(admin_skew * SECOND)), Random(1), "1")
        voting = [asyncio.create_task(booth.open(BEGIN + LENGTH)) for booth in booths]
        draining = None if worker_comes_late else asyncio.create_task(pipeline.drain())
        await asyncio.sleep(BEGIN - 0.5)
        booths[1].plan.break_down("get", Unavailable("down", status="UNAVAILABLE"))
        await alter(admin)
        await asyncio.sleep(6)
        booths[1].plan.break_down("get", None)
        await asyncio.gather(*voting)
        if draining is None:
            await asyncio.sleep(300)
            draining = asyncio.create_task(pipeline.drain())
        assert await draining == [0]
        await judge(pipeline, made, booths)
        for booth in booths:
            assert booth.outcomes["accepted"]
            assert booth.outcomes[code]
            assert booth.last == ("accepted" if change == "opening" else code), "a change is seen by all in the end"

    tally_loop.run(main())


@pytest.mark.parametrize("old_definition", [False, True])
def test_the_worker_allows_a_minute_past_the_end_and_an_old_definition_may_accept_more(
    tally_loop: VirtualLoop, old_definition: bool
) -> None:
    async def main() -> None:
        pipeline, made = Pipeline(), poll(partitions=1)
        await pipeline.prepare(made)
        stop = asyncio.Event()
        working = asyncio.create_task(pipeline.worker().run(stop))
        if old_definition:
            await pipeline.publish(votes(made, [0], pipeline.clock.now()))
            await asyncio.sleep(2)
        end = pipeline.clock.now() + 10 * SECOND
        await pipeline.store.commit([Upsert(to_entity(poll(partitions=1, closes_at=end)))])
        await asyncio.sleep(75)
        await pipeline.publish(votes(made, [1, 2], end + GRACE - 1))  # stamped at the end of the grace, and 1 µs later
        await asyncio.sleep(5)
        stop.set()
        assert await working == 0
        late = {votes(made, [2], 0)[0].ballot}
        assert ballots_of(await pipeline.dead_letters()) == (set() if old_definition else late)
        assert sum((await pipeline.totals(made)).values()) == (3 if old_definition else 1)

    tally_loop.run(main())


def test_a_function_whose_clock_is_minutes_off_takes_nothing_until_it_is_right(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        pipeline, made = Pipeline(), poll()
        await pipeline.prepare(made)
        for skew in (-300, 300):
            booth = Booth(pipeline, skew, f"off by {skew}")
            await booth.open(10)
            assert set(booth.outcomes) <= {"clock", "definition-unavailable"}
            assert booth.outcomes["clock"]
            booth.clock.step(-skew * SECOND)
            booth.outcomes.clear()
            if skew < 0:
                await booth.open(10)
                assert booth.last == "accepted"
                assert await pipeline.drain() == [0]
                await judge(pipeline, made, [booth])

    tally_loop.run(main())


@pytest.mark.parametrize("step", [-0.5, -3, -15, 3, 15])
def test_a_clock_that_is_stepped_stays_exact_and_serves_again(tally_loop: VirtualLoop, step: float) -> None:
    async def main() -> None:
        pipeline, made = Pipeline(), poll()
        await pipeline.prepare(made)
        booth = Booth(pipeline, -step / 2, "stepped")
        voting = asyncio.create_task(booth.open(60))
        draining = asyncio.create_task(pipeline.drain())
        await asyncio.sleep(20)
        booth.clock.step(round(step * SECOND))
        await asyncio.sleep(20)
        assert booth.last == "accepted", "within the length of the step"
        await voting
        assert await draining == [0]
        await judge(pipeline, made, [booth])

    tally_loop.run(main())


@pytest.mark.parametrize("step", [-39, -61, -3_700, 61, 3_700])
def test_a_machine_whose_one_clock_is_set_anew_under_load_promises_no_vote_that_is_refused(
    tally_loop: VirtualLoop, step: int
) -> None:
    """Function, Pub/Sub and store share it: nobody can tell, and a definition held goes on for some seconds."""

    async def main() -> None:
        pipeline, made = Pipeline(), poll()
        await pipeline.prepare(made)
        booth = Booth(pipeline, 0, "on one machine")
        booth.function = Function(pipeline.store, pipeline.backend.pubsub, pipeline.clock, booth.plan)
        voting = asyncio.create_task(booth.open(20))
        await asyncio.sleep(10)
        pipeline.clock.step(step * SECOND)
        await voting
        assert await pipeline.drain() == [0]
        await judge(pipeline, made, [booth])

    tally_loop.run(main())


def test_instances_that_disagree_about_an_option_lose_no_vote(tally_loop: VirtualLoop) -> None:
    """A function that knows a new option publishes votes for it to a worker that does not."""

    async def main() -> None:
        pipeline, made = Pipeline(), poll(partitions=1)
        await pipeline.prepare(made)
        await pipeline.publish(votes(made, range(10), pipeline.clock.now()))
        draining = asyncio.create_task(pipeline.drain())
        await asyncio.sleep(5)
        longer = poll(partitions=1, options=("red", "blue", "green"))
        await pipeline.store.commit([Upsert(to_entity(longer))])
        data = batch.encode(votes(longer, range(10, 40), pipeline.clock.now()))
        await pipeline.backend.publisher.publish("votes", [Outgoing(data, {})])
        assert await draining == [0]
        assert sum((await pipeline.totals(longer)).values()) == 40
        assert await pipeline.dead_letters() == []

    tally_loop.run(main())
