"""Items gathered by group, on the fake store in virtual time."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from tally import limits
from tally.clock import SECOND
from tally.errors import InvalidInput, TooLarge, Unavailable
from tally.tasks.client import Tasks
from tally.tasks.deferred import Deferred, Registry
from tally.tasks.gather import Gather, queue_name
from tally.tasks.gatherer import Gatherer
from tally.tasks.pace import Bounds
from tally.tasks.system import TaskSystem
from tally.tasks.task import check_queue
from tally.testing.clock import VirtualClock
from tally.testing.eager import eager
from tally.testing.loop import VirtualLoop
from tally.testing.process import Process
from tally.testing.process import current as current_process
from tally.testing.store import FakeStore
from tests.unit.tasks.conftest import Go
from tests.unit.tasks.pull import Watched

RULE = Gather(max_size=5, max_delay=60, grace=20)


class World:
    """Workers with a function that gathers; `calls` are (seconds since the start, group, items)."""

    def __init__(self, rule: Gather = RULE) -> None:
        self.clock = VirtualClock()
        self.fake = FakeStore(clock=self.clock)
        self.store = Watched(self.fake)
        self.registry = Registry()
        self.registry.connect(self.system("producer").tasks)
        self.begun = 0
        self.calls: list[tuple[float, str, list[str]]] = []
        self.send: Deferred[..., Any] = self.registry.task("digest.send", queue="mail", gather=rule)(self._send)

    async def _send(self, reader: str, lines: list[str]) -> None:
        self.calls.append(((self.clock.now() - self.begun) / SECOND, reader, lines))

    def system(self, name: str) -> TaskSystem:
        return TaskSystem(self.registry, self.store, clock=self.clock, random=Random(name), worker=name, shards=1)

    def worker(self, name: str) -> Process:
        self.begun = self.begun or self.clock.now()
        process = Process(name)
        system = self.system(name)
        process.spawn(system.sweeper(["mail"]).run())
        process.spawn(system.executor({"mail": 1}, bounds=Bounds(poll_min=1)).run(asyncio.Event()))
        return process

    async def add(self, group: str, *items: str) -> None:
        for item in items:
            assert (await self.send.gather(group, item)).status == "added"
            await asyncio.sleep(0.001)

    def handed(self, group: str) -> list[list[str]]:
        return [items for _, each, items in self.calls if each == group]


@pytest.fixture
def world() -> World:
    return World()


def test_so_many_items_are_handed_over_at_once() -> None:
    assert Gather(max_size=limits.GATHERED_ITEMS).max_size == 200
    for max_size in (0, limits.GATHERED_ITEMS + 1):
        with pytest.raises(InvalidInput, match="want 1 to 200"):
            Gather(max_size=max_size)


@pytest.mark.parametrize(
    ("oldest", "newest", "due"), [(0, 0, False), (19, 19, False), (20, 20, True), (59, 1, False), (60, 1, True)]
)
def test_a_group_is_due_by_its_first_or_by_its_last(oldest: int, newest: int, due: bool) -> None:
    now = 1_000 * SECOND
    assert RULE.is_due(oldest=now - oldest * SECOND, newest=now - newest * SECOND, now=now) is due


@pytest.mark.parametrize(("rule", "seconds"), [(RULE, 5), (Gather(grace=4), 1), (Gather(max_delay=0), 0.25)])
def test_groups_are_looked_at_a_few_times_in_the_shortest_time(rule: Gather, seconds: float) -> None:
    assert rule.check == seconds


def test_the_queue_of_items_is_named_after_the_function() -> None:
    assert check_queue(queue_name("digest.send")).startswith("gather-digest-send-")
    assert queue_name("digest.send") != queue_name("digest-send")
    assert len(check_queue(queue_name("x" * 500))) <= 100


def test_a_function_that_gathers_takes_a_group_and_items(world: World, run: Go) -> None:
    with pytest.raises(InvalidInput, match="two arguments"):

        @world.registry.task("one", gather=RULE)
        async def one(items: list[str]) -> None: ...

    @world.registry.task("plain")
    async def plain(group: str, items: list[str]) -> None: ...

    async def main() -> None:
        with pytest.raises(InvalidInput, match="does not gather"):
            await plain.gather("g", "x")
        with pytest.raises(InvalidInput, match="argument 'lines'"):
            await world.send.gather("g", 7)
        with pytest.raises(InvalidInput, match="tag"):
            await world.send.gather("", "x")

    run(main())


def test_a_group_is_handed_over_when_none_came_for_a_while(world: World, run: Go) -> None:
    async def main() -> None:
        worker = world.worker("w")
        await world.add("a", "1", "2")
        await asyncio.sleep(15)
        await world.add("a", "3")
        await world.add("b", "4")
        await asyncio.sleep(60)
        assert sorted((group, items) for _, group, items in world.calls) == [("a", ["1", "2", "3"]), ("b", ["4"])]
        assert all(35 <= at < 47 for at, _, _ in world.calls)
        worker.kill()

    run(main())


def test_a_group_that_never_rests_is_handed_over_by_its_first(world: World, run: Go) -> None:
    async def main() -> None:
        worker = world.worker("w")
        for _ in range(4):
            await world.add("a", "x")
            await asyncio.sleep(19)
        assert [items for _, _, items in world.calls] == [["x"] * 4]
        assert 60 <= world.calls[0][0] < 72
        worker.kill()

    run(main())


def test_a_full_group_goes_at_once_and_the_rest_waits(world: World, run: Go) -> None:
    async def main() -> None:
        worker = world.worker("w")
        await world.add("a", *map(str, range(13)))
        await asyncio.sleep(12)
        assert sorted(world.handed("a")) == [["0", "1", "2", "3", "4"], ["5", "6", "7", "8", "9"]]
        await asyncio.sleep(30)
        assert world.handed("a")[2:] == [["10", "11", "12"]]
        worker.kill()

    run(main())


def test_what_one_call_does_not_hold_keeps_its_place(world: World, run: Go) -> None:
    async def main() -> None:
        await world.add("a", *(str(n) + "x" * 300_000 for n in range(9)))
        await asyncio.sleep(30)
        worker = world.worker("w")
        await asyncio.sleep(60)
        assert sorted([item[0] for item in items] for items in world.handed("a")) == [
            ["0", "1"],
            ["2", "3"],
            ["4", "5"],
            ["6", "7"],
            ["8"],
        ]
        worker.kill()

    run(main())


def test_items_of_a_name_are_added_once(world: World, run: Go) -> None:
    async def main() -> None:
        statuses = [(await world.send.gather("a", "x", name="n")).status for _ in range(2)]
        assert statuses == ["added", "exists"]

    run(main())


def test_an_item_past_the_limit_is_refused(world: World, run: Go) -> None:
    async def main() -> None:
        worker = world.worker("w")
        with pytest.raises(TooLarge, match="800000"):
            await world.send.gather("a", "x" * (limits.GATHERED_BYTES - 1))  # and two quotes
        large = "x" * (limits.GATHERED_BYTES - 2)
        await world.add("a", "small", large, "small")
        await asyncio.sleep(90)
        assert sorted(len(items) for items in world.handed("a")) == [1, 1, 1]
        assert [large] in world.handed("a")
        worker.kill()

    run(main())


def test_each_item_is_in_one_call_though_workers_die_and_wake_up_late_and_replies_are_lost(
    world: World, run: Go
) -> None:
    async def main() -> None:
        random = Random(7)
        workers = [world.worker(f"w{n}") for n in range(3)]
        sent = [f"{n}" for n in range(50)]
        for number, item in enumerate(sent):
            await world.add(f"g{number % 3}", item)
            await asyncio.sleep(random.random() * 2)
            if number % 15 == 14:
                world.store.after = [None, Unavailable("the reply was lost")] * 3
            if number % 20 == 19:
                workers.pop(0).kill()
                workers.append(world.worker(f"w{number}"))
            if number % 30 == 10:
                suspended = workers[1]
                suspended.freeze()
                loop = asyncio.get_running_loop()
                assert isinstance(loop, VirtualLoop)
                loop.call_later(50, loop.thaw, suspended)
        await asyncio.sleep(200)
        calls = {run.properties["data"] for run in world.fake.of_kind("TaskRun")}
        assert Counter(item for _, _, items in world.calls for item in items) == Counter(sent)
        assert len(calls) == len(world.calls)
        assert all(len(items) <= 5 for _, _, items in world.calls)
        for worker in workers:
            worker.kill()

    run(main())


def test_gatherers_that_meet_hand_over_each_item_once(world: World, run: Go) -> None:
    async def main() -> None:
        world.store.latency = 0.05
        await world.add("a", *map(str, range(5)))
        await world.add("b", "5", "6")
        await asyncio.sleep(30)
        await asyncio.gather(*(world.system(f"s{n}").gatherer().sweep() for n in range(6)))
        worker = world.worker("w")
        await asyncio.sleep(60)
        assert sorted(items for _, _, items in world.calls) == [["0", "1", "2", "3", "4"], ["5", "6"]]
        worker.kill()

    run(main())


def test_one_worker_looks_for_all_and_another_takes_over(
    world: World, run: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Process | None] = []
    gather = Gatherer._gather

    async def noted(gatherer: Gatherer, deferred: Deferred[..., Any], rule: Gather) -> int:
        looks.append(current_process())
        return await gather(gatherer, deferred, rule)

    monkeypatch.setattr(Gatherer, "_gather", noted)

    async def main() -> None:
        workers = [world.worker(f"w{n}") for n in range(3)]
        await asyncio.sleep(100)
        (first,) = set(looks)
        assert first is not None
        first.kill()
        looks.clear()
        await world.add("a", "x")
        await asyncio.sleep(100)
        assert world.handed("a") == [["x"]]
        (second,) = set(looks)
        assert second in workers
        for worker in workers:
            worker.kill()

    run(main())


def test_eager_calls_get_each_item_by_itself(run: Go) -> None:
    world = World()

    async def main() -> None:
        with eager(world.registry, world.fake, world.clock) as tasks:
            assert isinstance(tasks, Tasks)
            await world.add("a", "1", "2")
        assert world.handed("a") == [["1"], ["2"]]

    run(main())
