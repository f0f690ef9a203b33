"""What the tests of events share: workers whose events are noted, functions that end in each way, and a rescue."""

import asyncio

from tally.retry import RetryPolicy
from tally.tasks.context import Discard, Retry, current
from tally.tasks.events import RunEvent
from tally.testing.loop import VirtualLoop
from tally.testing.process import Process
from tests.unit.tasks import executing

TWICE = RetryPolicy(max_attempts=2, min_backoff=10.0, max_backoff=10.0)


class World(executing.World):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[RunEvent] = []

    def listen(self) -> None:
        self.registry.on()(self.told.append)

    @property
    def kinds(self) -> list[str]:
        return [str(event.kind) for event in self.told]


async def fine() -> int:
    await asyncio.sleep(3)
    return 1


async def bad() -> None:
    await asyncio.sleep(3)
    raise ValueError("bad luck")


async def busy() -> None:
    if current().attempt == 1:
        raise Retry("not yet", after=60)


async def unwanted() -> None:
    raise Discard("nobody wants it")


async def fatal() -> None:
    raise KeyError("k")


async def freeze_and_rescue(world: World) -> None:
    """Let w1 fall silent in the midst of what is in the queue, w2 do it, and w1 wake up."""
    frozen = Process("w1")
    frozen.spawn(world.serve(worker="w1", seconds=1_000))
    await asyncio.sleep(10)
    frozen.freeze()
    await world.serve(worker="w2")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.thaw(frozen)
    await asyncio.sleep(60)
    frozen.kill()
