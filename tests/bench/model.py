"""The rate model against the simulator: 100,000 votes in five virtual minutes by the real code, under quotas."""

import asyncio
from functools import partial

from tally.votes import scale
from tests.bench.measure import Budget, Outcome, single
from tests.bench.stage import Stage
from tests.event import Event, play

SECTION = "model"
REGION = "us-central1"
_figure = partial(single, SECTION)


async def run(stage: Stage) -> Outcome:
    votes = stage.votes(100_000)
    minutes = 5 * votes / 100_000
    plan = scale.plan(votes, minutes, REGION)
    event = Event(
        votes=votes,
        minutes=minutes,
        instances=plan.instances,
        partitions=plan.partitions,
        workers=plan.deployment.workers,
        streams=plan.streams,
    )
    found = await asyncio.to_thread(play, event)
    if (found.accepted, found.counted) != (votes, votes):
        raise RuntimeError(f"{found.accepted} of {votes} votes were accepted and {found.counted} counted")
    pairs = {
        "messages": (found.messages, plan.messages),
        "commits": (found.commits, plan.commits),
        "entity writes and deletes": (found.writes + found.deletes, plan.writes),
        "seconds from the last vote to its count": (found.drain_seconds, plan.drain_seconds),
    }
    figures = [_figure(name, "", value, f"the model says {said:,.0f}") for name, (value, said) in pairs.items()]
    figures.append(_figure("entity writes and deletes of the busiest second", "", found.most_writes, "a quota of 500"))
    figures.append(_figure("calls refused over a quota", "", found.refused))
    worst = max(abs(value / said - 1) for name, (value, said) in pairs.items() if "seconds" not in name)
    off = _figure("the model is off by at most", "%", 100 * worst, "messages, commits, writes")
    # A quick look is over before the first segments are folded: then the writes are a third fewer.
    bound = 10 if stage.scale == 1 else 40
    return Outcome(
        figures=(*figures, off),
        budgets=(Budget(name="rate model against the simulator, % off", figure=off, bound=bound, at_most=True),),
    )
