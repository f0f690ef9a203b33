import asyncio
from random import Random

import pytest

from tally.testing.loop import Deadlock, VirtualLoop
from tally.testing.process import Process, current


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> float:
        await asyncio.sleep(3_600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.get_running_loop().create_future()
        return asyncio.get_running_loop().time()

    with VirtualLoop() as loop:
        assert loop.run(main()) == 3_660


def test_nothing_to_wait_for_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with VirtualLoop() as loop, pytest.raises(Deadlock, match="no timer"):
        loop.run(main())


def test_an_error_that_nobody_waits_for_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 // 0)
        await asyncio.sleep(2)

    with VirtualLoop() as loop, pytest.raises(RuntimeError, match="unhandled"):
        loop.run(main())


def test_run_cancels_what_is_left() -> None:
    ended: list[str] = []

    async def rest() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("rest")

    async def main() -> None:
        task = asyncio.create_task(rest())
        await asyncio.sleep(1)
        assert not task.done()

    with VirtualLoop() as loop:
        loop.run(main())
        assert ended == ["rest"]
        assert loop.time() == 1


def test_a_blocking_function_runs_as_a_callback() -> None:
    async def main() -> int:
        return await asyncio.to_thread(divmod, 7, 4) == (1, 3)

    with VirtualLoop() as loop:
        assert loop.run(main())


def trace(seed: int | None) -> list[str]:
    """Run three processes that all wake at the same instants; return who ran when."""
    seen: list[str] = []

    async def work(name: str) -> None:
        for _ in range(4):
            seen.append(name)
            await asyncio.sleep(1)

    async def main() -> None:
        processes = [Process(name) for name in "abc"]
        await asyncio.gather(*(process.spawn(work(process.name + n)) for process in processes for n in "12"))

    with VirtualLoop(random=None if seed is None else Random(seed)) as loop:
        loop.run(main())
    return seen


def test_a_seed_gives_the_same_order_again_and_seeds_differ() -> None:
    assert trace(1) == trace(1)
    assert len({tuple(trace(seed)) for seed in range(5)}) > 1
    assert trace(None)[:6] == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_within_a_process_the_order_is_asyncios() -> None:
    first = [name for name in trace(7) if name.startswith("a")]
    assert first[:2] == ["a1", "a2"]


def test_a_dead_process_runs_nothing_more() -> None:
    done: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(2)
        finally:
            done.append("child")

    async def work() -> None:
        children = [asyncio.create_task(child())]
        await asyncio.gather(*children)

    async def main() -> None:
        process = Process("p")
        process.spawn(work())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(10)

    with VirtualLoop() as loop:
        loop.run(main())
        assert not done


def test_a_fuse_kills_between_two_awaits() -> None:
    steps: list[int] = []

    async def work() -> None:
        for step in range(10):
            steps.append(step)
            await asyncio.sleep(0)

    async def main() -> None:
        process = Process("p")
        process.fuse = 3
        process.spawn(work())
        await asyncio.sleep(1)
        assert process.dead

    with VirtualLoop() as loop:
        loop.run(main())
        assert steps == [0, 1, 2]


def test_a_frozen_process_comes_back_late() -> None:
    async def work() -> float:
        assert current() is not None
        await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    async def main(loop: VirtualLoop) -> float:
        process = Process("p")
        task = process.spawn(work())
        await asyncio.sleep(0.5)
        process.freeze()
        await asyncio.sleep(30)
        assert not task.done()
        loop.thaw(process)
        return await task

    with VirtualLoop() as loop:
        assert loop.run(main(loop)) == 30.5
