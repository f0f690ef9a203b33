"""Any sequence of calls leaves the queue as a model of a few lines says: a name is waiting, held, dead or spent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tally.clock import SECOND
from tally.errors import LeaseExpired
from tally.retry import RetryPolicy
from tally.tasks.lease import Lease
from tally.tasks.queue import PullQueue
from tally.tasks.task import Task
from tests.unit.tasks.pull import World, run

NAMES = ("a", "b", "c")
LEASE = 10

Step = tuple[str, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "lease", "complete", "release", "fail", "extend", "reject", "delete", "replay", "drop", "wait"]
        ),
        st.integers(0, 15),
    ),
    max_size=40,
)


@dataclass
class Known:
    """What the model knows of a name: `due` is when it may be leased (next)."""

    state: str
    due: int
    token: str = ""
    settled_by: str = ""


class Model:
    def __init__(self) -> None:
        self.names: dict[str, Known] = {}
        self.leases: list[Lease] = []

    def holds(self, lease: Lease, now: int) -> bool:
        known = self.names[lease.name]
        return known.state == "live" and known.token == lease.token and lease.expires_at > now

    def due(self, now: int) -> set[str]:
        return {name for name, known in self.names.items() if known.state == "live" and known.due <= now}

    def in_state(self, state: str) -> set[str]:
        return {name for name, known in self.names.items() if known.state == state}


@settings(max_examples=100, deadline=None)
@given(steps=steps)
def test_any_sequence_of_calls_leaves_what_the_model_says(steps: list[Step]) -> None:
    async def body(world: World) -> None:
        queue = world.queue(retry=RetryPolicy(max_attempts=-1, min_backoff=5, max_backoff=5), shards=2)
        model = Model()
        for verb, number in steps:
            name, now = NAMES[number % len(NAMES)], world.clock.now()
            known = model.names.get(name)
            match verb:
                case "add":
                    wanted = "added" if known is None else "tombstoned" if known.state == "spent" else "exists"
                    assert (await queue.add(Task(name=name, delay=number))).status == wanted
                    if known is None:
                        model.names[name] = Known("live", now + number * SECOND)
                case "lease":
                    leases = await queue.lease(number + 1, seconds=LEASE)
                    assert len(leases) == min(number + 1, len(model.due(now)))
                    assert {lease.name for lease in leases} <= model.due(now)
                    for lease in leases:
                        model.names[lease.name].due, model.names[lease.name].token = lease.expires_at, lease.token
                    model.leases += leases
                case "complete" | "release" | "fail" | "extend" | "reject" if model.leases:
                    await settle(queue, verb, model, model.leases[number % len(model.leases)], now)
                case "delete":
                    assert await queue.delete(name) == (known is not None and known.state != "spent")
                    if known:
                        known.state, known.settled_by = "spent", ""
                case "replay" | "drop":
                    done = await (queue.replay(name) if verb == "replay" else queue.drop(name))
                    assert done == (known is not None and known.state == "dead")
                    if known and done:
                        model.names[name] = Known("live" if verb == "replay" else "spent", now)
                case "wait":
                    await asyncio.sleep(number)
        assert {info.name for info in await queue.list()} == model.in_state("live")
        assert {info.name for info in await queue.list("dead")} == model.in_state("dead")
        stats = await queue.stats()
        now = world.clock.now()
        held = {name for name in model.in_state("live") if model.names[name].token and model.names[name].due > now}
        assert (stats.tasks, stats.in_flight, stats.dead) == tuple(
            map(len, (model.in_state("live"), held, model.in_state("dead")))
        )

    run(body)


async def settle(queue: PullQueue, verb: str, model: Model, lease: Lease, now: int) -> None:
    """Settle a lease, and expect LeaseExpired exactly if the model says that it no longer holds its task."""
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "complete": lambda: queue.complete(lease),
        "release": lambda: queue.release(lease),
        "fail": lambda: queue.release(lease, error="x"),
        "extend": lambda: queue.extend(lease, LEASE),
        "reject": lambda: queue.reject(lease, "x"),
    }
    holds = model.holds(lease, now)
    known = model.names[lease.name]
    state = {"complete": "spent", "reject": "dead"}.get(verb, "live")
    again = verb != "extend" and known.settled_by == lease.token and known.state == state and lease.expires_at > now
    try:
        await calls[verb]()
    except LeaseExpired:
        assert not holds
        assert not again
        return
    assert holds or again
    if holds:
        known.state = state
        known.due = now + {"extend": LEASE, "fail": 5}.get(verb, 0) * SECOND
        if verb != "extend":
            known.token, known.settled_by = "", lease.token
