"""Functions as tasks: how they are registered, called, named and renamed."""

import asyncio
from typing import Any

import pytest

from tally.errors import ConfigError, Conflict, InvalidInput, Unavailable
from tally.tasks import call as calls
from tally.tasks.call import Delivery
from tally.tasks.deferred import Registry, hand_back
from tally.tasks.pool import WorkerPool
from tally.tasks.task import Unique
from tests.unit.tasks.calls import World, counted
from tests.unit.tasks.conftest import Go


async def nothing() -> None: ...


def test_a_registered_function_can_still_be_called_as_itself(world: World) -> None:
    @world.registry.task("add")
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, 2) == 3


def test_bad_arguments_are_refused_at_the_enqueue_and_nothing_is_queued(world: World, run: Go) -> None:
    @world.registry.task("add")
    def add(a: int) -> None: ...

    async def main() -> None:
        for bad in ("1", 1.5, None, lambda: 1):
            with pytest.raises(InvalidInput, match="'a'"):
                await add.call(bad)  # type: ignore[arg-type]  # the point
        assert not world.line.waiting
        assert not world.store.entities

    run(main())


def test_a_name_may_be_registered_once(world: World) -> None:
    world.registry.task("x")(nothing)
    with pytest.raises(Conflict, match="'x'"):
        world.registry.task("x")(nothing)


def test_a_call_without_a_queue_system_says_so(run: Go) -> None:
    lonely = Registry().task("x")(nothing)

    async def main() -> None:
        with pytest.raises(ConfigError, match="no task queue"):
            await lonely.call()

    run(main())


def test_task_shows_the_call_as_any_language_may_write_it(world: World, run: Go) -> None:
    @world.registry.task("mail.send")
    async def send(to: str) -> str:
        return f"sent to {to}"

    task = send.later(tag="t", delay=5).task("you")
    assert task.payload == b'{"v":1,"call":"mail.send","arguments":{"to":"you"},"keep":86400.0}'

    async def main() -> None:
        payload = b'{"v":1,"call":"mail.send","arguments":{"to":"me"}}'
        await world.line.carry(Delivery(queue="default", id="from-go", payload=payload))
        await world.work()
        assert await world.tasks.handle("from-go").result(1) == "sent to me"

    run(main())


def test_an_upgrade_renames_a_call_and_changes_its_arguments(world: World, run: Go) -> None:
    old = Registry()

    @old.task("mail.send_v1")
    async def send_v1(address: str) -> None: ...

    @world.registry.task("mail.send")
    async def send(to: list[str]) -> int:
        return len(to)

    @world.registry.upgrade("mail.send_v1")
    def _(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "mail.send", {"to": [arguments["address"]]}

    async def main() -> None:
        old.connect(world.tasks)
        handle = await send_v1.call("a@b")
        await world.work()
        assert await handle.result(1) == 1

    run(main())


def test_upgrades_in_a_circle_are_parked(world: World, run: Go) -> None:
    world.registry.upgrade("a")(lambda arguments: ("b", arguments))
    world.registry.upgrade("b")(lambda arguments: ("a", arguments))

    async def main() -> None:
        await world.line.carry(Delivery(queue="q", id="i", payload=b'{"v":1,"call":"a"}'))
        await world.work()
        assert await world.parked() == [("a", "unknown or undecodable")]

    run(main())


def test_a_name_is_taken_once_and_gives_the_same_handle(world: World, run: Go) -> None:
    once, runs = counted(world.registry)

    async def main() -> None:
        first = await once.later(name="n").call()
        second = await once.later(name="n").call()
        await world.work()
        third = await once.later(name="n").call()
        await world.work()
        assert (first.created, second.created, third.created) == (True, False, False)
        assert first.id == second.id == third.id
        assert len(runs) == 1

    run(main())


def test_a_unique_call_may_come_again_after_its_period(world: World, run: Go) -> None:
    daily, runs = counted(world.registry)

    async def main() -> None:
        unique = Unique(period=3600, key="report")
        for pause in (0, 1800, 1801):
            await asyncio.sleep(pause)
            await daily.later(unique=unique).call()
            await world.work()
        assert len(runs) == 2

    run(main())


def test_an_enqueue_whose_reply_was_lost_is_tried_again_and_runs_once(world: World, run: Go) -> None:
    once, runs = counted(world.registry)

    async def main() -> None:
        world.line.fail = 2
        await once.call()
        world.line.fail = 9
        with pytest.raises(Unavailable):
            await once.later(name="n").call()
        world.line.fail = 0
        await once.later(name="n").call()
        await world.work()
        assert len(runs) == 2

    run(main())


def test_result_without_a_worker_gives_up_after_its_timeout(world: World, run: Go) -> None:
    never = world.registry.task("never")(nothing)

    async def main() -> None:
        handle = await never.call()
        with pytest.raises(TimeoutError, match="queued after 30 s"):
            await handle.result(30)

    run(main())


def test_jobs_of_a_stopped_pool_that_are_registered_tasks_go_back_to_their_queue(world: World, run: Go) -> None:
    @world.registry.task("t")
    async def t(x: int) -> int:
        return x

    async def main() -> None:
        pool = WorkerPool(1)
        pool.pause()
        pool.submit(t, 5)
        pool.submit(str, 6)
        rest = await hand_back(await pool.stop())
        assert [job.function for job in rest] == [str]
        assert len(world.line.waiting) == 1
        payload = world.line.waiting[0][2].payload
        assert calls.decode(payload).call == "t"
        await world.work()

    run(main())
