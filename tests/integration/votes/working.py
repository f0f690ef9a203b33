"""What the tests of workers on real backends share: workers at work, votes sent to them, and what came of these."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random

from tally.clock import SystemClock
from tally.config import Settings
from tally.ports import (
    Backend,
    Outgoing,
    Upsert,
)
from tally.votes import batch
from tally.votes.counter import Counter
from tally.votes.poll import Poll
from tally.votes.polls import to_entity
from tally.votes.recount import recount
from tally.votes.worker import Worker
from tests.unit.votes.pipeline import votes


def counter(backend: Backend, *, fold_from: int = 32) -> Counter:
    return Counter(backend.store, "p", 0, "keep", loads=asyncio.Semaphore(2), fold_from=fold_from)


class Workers:
    """Workers on one subscription, until the block is left."""

    def __init__(self, settings: Settings, backend: Backend, count: int = 1, fold_from: int = 32) -> None:
        self.workers = [
            Worker(
                backend.store,
                backend.puller(settings.subscription),
                backend.publisher,
                dead_letter_topic=settings.dead_letter_topic,
                clock=SystemClock(),
                random=Random(),
                fold_from=fold_from,
            )
            for _ in range(count)
        ]
        self._stop = asyncio.Event()

    async def __aenter__(self) -> "Workers":
        self._running = [asyncio.create_task(worker.run(self._stop)) for worker in self.workers]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        assert set(await asyncio.gather(*self._running)) == {0}

    async def until(self, condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(60):
            while True:
                answer = condition()
                if answer if isinstance(answer, bool) else await answer:
                    return
                assert not any(task.done() for task in self._running)
                await asyncio.sleep(0.05)

    async def until_settled(self, messages: int) -> None:
        def settled() -> bool:
            return sum(int(str(worker.health().body["settled"])) for worker in self.workers) >= messages

        await self.until(settled)


async def publish(settings: Settings, backend: Backend, made: Poll, numbers: Sequence[int], *, size: int) -> int:
    """Publish votes stamped now; return the number of messages."""
    everything = votes(made, numbers, SystemClock().now())
    messages = [
        Outgoing(batch.encode(everything[start : start + size]), {}) for start in range(0, len(everything), size)
    ]
    for start in range(0, len(messages), 500):
        await backend.publisher.publish(settings.topic, messages[start : start + 500])
    return len(messages)


async def total(backend: Backend, made: Poll) -> int:
    """Return the total, having seen that a recount agrees with it."""
    counted = await recount(backend.store, made)
    assert not counted.differences
    return len(counted.records)


async def letters(settings: Settings, backend: Backend, number: int) -> list[Outgoing]:
    """Take so many dead letters, and what else comes within half a second."""
    puller, taken = backend.puller(settings.dead_letter_subscription), list[Outgoing]()
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(30 if len(taken) < number else 0.5):
                received = await puller.pull(1_000)
            if not received and len(taken) >= number:
                break
            taken += [Outgoing(message.data, message.attributes) for message in received]
            if received:
                await puller.acknowledge([message.ack_id for message in received])
    return taken


async def prepare(backend: Backend, made: Poll) -> None:
    await backend.store.commit([Upsert(to_entity(made))])
