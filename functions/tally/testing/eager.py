"""Task functions without workers: a call runs at once, to its end, in the process and loop that make it.

Times are ignored, retries follow at once; arguments, results and errors travel as they would. A test that wants time
to pass runs the real executor on a virtual loop instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from tally.clock import Clock
from tally.ports import Store
from tally.tasks.call import Delivery
from tally.tasks.client import Tasks
from tally.tasks.deferred import Registry
from tally.tasks.pool import WorkerPool
from tally.tasks.runner import Runner


class EagerCarrier:
    """Runs each delivery as soon as it is carried."""

    def __init__(self) -> None:
        self.runner: Runner | None = None

    async def carry(self, delivery: Delivery) -> None:
        assert self.runner is not None
        while (again := await self.runner.run(delivery)) is not None:
            delivery = replace(delivery, hop=again.hop)

    async def hurry(self, name: str) -> bool:
        """Return False: nothing ever waits."""
        return False


@contextmanager
def eager(registry: Registry, store: Store, clock: Clock, random: Random | None = None) -> Iterator[Tasks]:
    """Connect a registry to itself for a while: `call` returns when the run has ended."""
    random = Random(0) if random is None else random
    carrier = EagerCarrier()
    tasks = Tasks(registry, store, lambda _: carrier, clock=clock, random=random, at_once=True)
    carrier.runner = Runner(
        registry,
        tasks.runs,
        store,
        WorkerPool(100, idle=0.05),
        clock=clock,
        random=random,
        worker="eager",
        patient=False,
    )
    before = registry.connected
    registry.connect(tasks)
    try:
        yield tasks
    finally:
        registry.connect(before)
