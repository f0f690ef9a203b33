"""Wrappers over real ports that fail before, after or instead of the call, as a plan says.

    plan = Plan(Random(seed), {"commit:reply-lost": 0.05, "get:deferred": 0.1, "message:copied": 0.1})
    store = FaultyStore(FakeStore(), Network(plan))

A call travels outside its caller's process and is applied even when the caller dies.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from tally.errors import BackendError
from tally.ports import Committed, Key, Lookup, Outgoing, Page, Publisher, Puller, Query, Received, Store, Write
from tally.testing.plan import CALLS, Fate, Plan
from tally.testing.process import no_process

T = TypeVar("T")


class Network:
    """Carries calls to a service and answers back, as the plan says.

    `late` counts the calls that failed and are still to be applied. `waiting` names the calls in which the service may
    wait: it does so in a task. The others must answer at once, as the fakes do: that is a third faster.
    """

    def __init__(self, plan: Plan, *, waiting: Collection[str] = CALLS) -> None:
        self.plan = plan
        self._waiting = waiting
        self.late = 0
        self._outside = no_process()
        self._services: set[asyncio.Task[object]] = set()

    async def call(self, name: str, send: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call by `send`, which may be used later than now, twice, or not at all."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        fate = self.plan.fate(name)
        deliver = self._deliver_waiting if name in self._waiting else self._deliver
        loop.call_later(fate.there, deliver, send, fate, answer, context=self._outside)
        return await answer

    # What follows runs outside all processes.

    def _deliver(self, send: Callable[[], Coroutine[Any, Any, T]], fate: Fate, answer: asyncio.Future[T]) -> None:
        """Bring a call to a service that answers at once, or its refusal back."""
        loop = asyncio.get_running_loop()
        if fate.before is not None:
            _settle(answer, fate.before)
            if fate.late is not None:
                self.late += 1
                loop.call_later(fate.late, self._deliver_late, send)
            return
        for _ in range(fate.times):
            outcome = _at_once(send)
        loop.call_later(fate.back, _settle, answer, fate.after or outcome)

    def _deliver_late(self, send: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.late -= 1
        _at_once(send)

    def _deliver_waiting(
        self, send: Callable[[], Coroutine[Any, Any, T]], fate: Fate, answer: asyncio.Future[T]
    ) -> None:
        """Bring a call to a service that may wait, or its refusal back."""
        if fate.before is not None:
            _settle(answer, fate.before)
            if fate.late is None:
                return
        service = asyncio.get_running_loop().create_task(self._serve(send, fate))
        self._services.add(service)
        service.add_done_callback(partial(self._served, fate, answer))

    async def _serve(self, send: Callable[[], Coroutine[Any, Any, T]], fate: Fate) -> T:
        if fate.late is not None:
            self.late += 1
            await asyncio.sleep(fate.late)
            self.late -= 1
        for _ in range(fate.times - 1):
            with suppress(BackendError):
                await send()
        return await send()

    def _served(self, fate: Fate, answer: asyncio.Future[T], service: asyncio.Task[T]) -> None:
        self._services.discard(service)
        if service.cancelled():
            return
        error = service.exception()
        if error is not None and not isinstance(error, BackendError):
            raise error
        outcome = fate.after or error or service.result()
        asyncio.get_running_loop().call_later(fate.back, _settle, answer, outcome)


def _at_once(send: Callable[[], Coroutine[Any, Any, T]]) -> T | BackendError:
    service = send()
    try:
        service.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    except BackendError as error:
        return error
    service.close()
    raise RuntimeError("the service waits: name the call in Network's `waiting`")


def _settle(answer: asyncio.Future[T], outcome: T | BackendError) -> None:
    if answer.done():
        return
    if isinstance(outcome, BackendError):
        answer.set_exception(outcome)
        answer.exception()  # its caller may be dead: then nobody will ask
    else:
        answer.set_result(outcome)


class FaultyStore:
    """A Store behind a network. `poison`, when set, may return an error for a commit instead of its being applied."""

    def __init__(self, store: Store, network: Network) -> None:
        self._store = store
        self._network = network
        self.poison: Callable[[Sequence[Write]], BackendError | None] | None = None

    async def get(self, keys: Sequence[Key]) -> Lookup:
        keys = tuple(keys)
        if len(keys) > 1 and self._network.plan.strikes("get:torn"):
            half = self._network.plan.random.randrange(1, len(keys))
            first, second = await self._get(keys[:half]), await self._get(keys[half:])
            return self._defer(
                Lookup(
                    found=first.found + second.found,
                    missing=first.missing + second.missing,
                    read_time=first.read_time,
                )
            )
        return self._defer(await self._get(keys))

    async def commit(self, writes: Sequence[Write]) -> Committed:
        writes = tuple(writes)
        return await self._network.call("commit", lambda: self._commit(writes))

    async def query(self, query: Query) -> Page:
        return await self._network.call("query", lambda: self._store.query(query))

    async def _commit(self, writes: Sequence[Write]) -> Committed:
        error = self.poison(writes) if self.poison else None
        if error is not None:
            raise error
        return await self._store.commit(writes)

    async def _get(self, keys: tuple[Key, ...]) -> Lookup:
        return await self._network.call("get", lambda: self._store.get(keys))

    def _defer(self, answer: Lookup) -> Lookup:
        plan = self._network.plan
        if not plan.strikes("get:deferred"):
            return answer
        keys = [*(entity.key for entity in answer.found), *answer.missing]
        deferred = tuple(key for key in keys if plan.random.random() < 0.5)
        return Lookup(
            found=tuple(entity for entity in answer.found if entity.key not in deferred),
            missing=tuple(key for key in answer.missing if key not in deferred),
            deferred=deferred,
            read_time=answer.read_time,
        )


class FaultyPublisher:
    def __init__(self, publisher: Publisher, network: Network) -> None:
        self._publisher = publisher
        self._network = network

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        messages = tuple(messages)
        return await self._network.call("publish", lambda: self._publisher.publish(topic, messages))


class FaultyPuller:
    def __init__(self, puller: Puller, network: Network) -> None:
        self._puller = puller
        self._network = network

    async def pull(self, max_messages: int) -> Sequence[Received]:
        return await self._network.call("pull", lambda: self._pull(max_messages))

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        ack_ids = tuple(ack_ids)
        await self._network.call("acknowledge", lambda: self._puller.acknowledge(ack_ids))

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        ack_ids = tuple(ack_ids)
        await self._network.call("extend", lambda: self._puller.extend(ack_ids, seconds))

    async def _pull(self, max_messages: int) -> Sequence[Received]:
        if self._network.plan.strikes("pull:empty"):
            return []
        return await self._puller.pull(max_messages)


class SeededManners:
    """What Pub/Sub does with messages (pubsub.Manners), by a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def visible_after(self) -> float:
        return self._plan.lateness() if self._plan.strikes("message:delayed") else 0.0

    def copies(self) -> int:
        return 2 if self._plan.strikes("message:copied") else 1

    def place(self, waiting: int) -> int:
        if waiting > 1 and self._plan.strikes("message:swapped"):
            return int(self._plan.random.random() * waiting)
        return 0

    def keeps_acknowledged(self, *, late: bool) -> bool:
        return not self._plan.strikes("ack:late-taken") if late else self._plan.strikes("ack:forgotten")
