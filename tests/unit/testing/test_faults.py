import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tally.errors import BackendError, Refused, Unavailable
from tally.ports import Entity, Insert, Key, Outgoing, read
from tally.testing.clock import VirtualClock
from tally.testing.faults import (
    FaultyPublisher,
    FaultyPuller,
    FaultyStore,
    Network,
    SeededManners,
)
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.process import Process
from tally.testing.pubsub import FakePubSub
from tally.testing.store import FakeStore

KEY: Key = (("K", "a"),)


def plan(**rates: float) -> Plan:
    """Make a plan of `call__fault=rate`."""
    return Plan(Random(1), {name.replace("__", ":").replace("_", "-"): rate for name, rate in rates.items()})


async def outcome(call: Callable[[], Awaitable[object]]) -> str:
    try:
        await call()
    except BackendError as error:
        return f"{type(error).__name__} {error.status}"
    return "ok"


@pytest.mark.parametrize(
    ("fault", "answer", "applied", "applied_later"),
    [
        ("refused", "Unavailable UNAVAILABLE", False, False),
        ("failed-after", "Unavailable UNAVAILABLE", True, True),
        ("reply-lost", "Unavailable DEADLINE_EXCEEDED", True, True),
        ("request-lost", "Unavailable DEADLINE_EXCEEDED", False, False),
        ("applied-late", "Unavailable UNAVAILABLE", False, True),
        ("repeated", "Refused ALREADY_EXISTS", True, True),
        ("slow", "ok", True, True),
        ("aborted", "Refused ABORTED", False, False),
        ("aborted-after", "Refused ABORTED", True, True),
    ],
)
def test_a_fate_says_what_is_applied_and_what_is_answered(
    tally_loop: VirtualLoop, fault: str, answer: str, applied: bool, applied_later: bool
) -> None:
    async def main() -> None:
        inner = FakeStore()
        faults = Plan(Random(1), {f"commit:{fault}": 1.0})
        store = FaultyStore(inner, Network(faults))
        insert = Insert(Entity(key=KEY, properties={}))
        assert await outcome(lambda: store.commit([insert])) == answer  # of seed 1
        assert (KEY in inner.entities) == applied
        await asyncio.sleep(30)
        assert (KEY in inner.entities) == applied_later
        assert faults.fired == {f"commit:{fault}": 1}

    tally_loop.run(main())


def test_deferred_keys_are_asked_for_again(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        inner = FakeStore()
        await inner.commit([Insert(Entity(key=KEY, properties={"n": 1}))])
        faults = plan(get__deferred=0.8)
        found, _ = await read(FaultyStore(inner, Network(faults)), [KEY, (("K", "b"),)])
        assert list(found) == [KEY]
        assert faults.fired["get:deferred"] > 0

    tally_loop.run(main())


def test_a_torn_lookup_is_no_snapshot(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        inner = FakeStore()
        other: Key = (("K", "b"),)
        store = FaultyStore(inner, Network(plan(get__torn=1.0)))
        lookup = asyncio.create_task(store.get([KEY, other]))
        await asyncio.sleep(0.02)
        await inner.commit([Insert(Entity(key=KEY, properties={})), Insert(Entity(key=other, properties={}))])
        answer = await lookup
        assert [entity.key for entity in answer.found] == [other]
        assert answer.missing == (KEY,)

    tally_loop.run(main())


def test_a_call_is_applied_though_its_caller_dies(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        inner = FakeStore()
        store = FaultyStore(inner, Network(plan()))
        process = Process("p")
        process.spawn(store.commit([Insert(Entity(key=KEY, properties={}))]))
        await asyncio.sleep(0.001)
        process.kill()
        await asyncio.sleep(1)
        assert KEY in inner.entities

    tally_loop.run(main())


def test_a_broken_service_fails_until_it_is_mended(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        faults = plan()
        store = FaultyStore(FakeStore(), Network(faults))
        faults.break_down("get", Unavailable("down", status="UNAVAILABLE"))
        assert await outcome(lambda: store.get([KEY])) == "Unavailable UNAVAILABLE"
        faults.break_down("get", None)
        assert await outcome(lambda: store.get([KEY])) == "ok"

    tally_loop.run(main())


def test_a_poisoned_commit_is_refused(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        store = FaultyStore(FakeStore(), Network(plan()))
        store.poison = lambda writes: Refused("poison", status="NOT_FOUND") if len(writes) == 1 else None
        assert await outcome(lambda: store.commit([Insert(Entity(key=KEY, properties={}))])) == "Refused NOT_FOUND"

    tally_loop.run(main())


def test_every_message_comes_whatever_the_service_does_with_it(tally_loop: VirtualLoop) -> None:
    async def main() -> None:
        faults = plan(
            message__copied=0.3, message__delayed=0.3, message__swapped=0.5, ack__forgotten=0.3, ack__late_taken=0.5,
            pull__empty=0.3, pull__reply_lost=0.2, publish__repeated=0.3, acknowledge__failed_after=0.2,
            acknowledge__applied_late=0.2,
        )  # fmt: skip
        pubsub = FakePubSub(clock=VirtualClock(), manners=SeededManners(faults))
        pubsub.create_topic("t")
        subscription = pubsub.create_subscription("s", "t")
        network = Network(faults)
        publisher, puller = FaultyPublisher(pubsub, network), FaultyPuller(subscription, network)
        for number in range(50):
            await publisher.publish("t", [Outgoing(str(number).encode(), {})])
        seen: list[bytes] = []
        while subscription.unsettled:
            try:
                messages = await puller.pull(5)
                seen += [message.data for message in messages]
                if messages:
                    await puller.acknowledge([message.ack_id for message in messages])
            except Unavailable:
                continue
        assert set(seen) == {str(number).encode() for number in range(50)}
        assert len(seen) > 50
        assert len(faults.fired) == 10

    tally_loop.run(main())


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="commit:nonsense"):
        plan(commit__nonsense=1.0)
