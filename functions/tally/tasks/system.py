"""The task queues of one process, put together: which queue is pushed and which is pulled, who enqueues, who runs."""

import os
import socket
from collections.abc import Iterable, Mapping
from random import Random

from tally.clock import Clock
from tally.errors import ConfigError
from tally.ports import CallerVerifier, Dispatcher, Store
from tally.tasks.admission import Admission
from tally.tasks.call import Carrier, Delivery
from tally.tasks.client import Tasks
from tally.tasks.deferred import Registry
from tally.tasks.executor import PullCarrier, PullExecutor, Source
from tally.tasks.gatherer import Gatherer
from tally.tasks.outbox import Adder, Outbox
from tally.tasks.outcome import Outcome
from tally.tasks.pace import Bounds
from tally.tasks.parking import Parking
from tally.tasks.pool import WorkerPool
from tally.tasks.push import PushQueue, Target
from tally.tasks.queue import PullQueue
from tally.tasks.receiver import PushReceiver
from tally.tasks.request import Requests, Send
from tally.tasks.runner import Runner
from tally.tasks.semaphore import Semaphores
from tally.tasks.sweeper import Sweeper
from tally.tasks.task import Task

PUSHED_AT_ONCE = 100  # calls that one process of `run_task` runs at a time


class TaskSystem:
    """`pushed` names the push queues, which need `dispatcher` and `target`; every other queue is a pull queue.

    `verifier` and `callers` say whose pushes are run; None: anybody's, for local work.
    `send` sends requests that are too large for the service. `shards` is for new pull queues: see `PullQueue`.
    """

    def __init__(
        self,
        registry: Registry,
        store: Store,
        *,
        clock: Clock,
        random: Random,
        dispatcher: Dispatcher | None = None,
        target: Target | None = None,
        verifier: CallerVerifier | None = None,
        callers: frozenset[str] = frozenset(),
        pushed: frozenset[str] = frozenset(),
        send: Send | None = None,
        worker: str = "",
        shards: int | None = None,
    ) -> None:
        self.tasks = Tasks(registry, store, self.carrier, clock=clock, random=random)
        self._registry = registry
        self._store = store
        self._clock = clock
        self._random = random
        self._dispatcher = dispatcher
        self._target = target
        self._verifier = verifier
        self._callers = callers
        self._pushed = pushed
        self._worker = worker or f"{socket.gethostname()}:{os.getpid()}"
        self._shards = shards
        self._requests = None if dispatcher is None else Requests(registry, self.tasks, dispatcher, send)
        semaphores = Semaphores(store, self.tasks.runs, clock, random)
        self._admission = Admission(registry, store, semaphores, clock=clock, random=random)
        self._carriers: dict[str, Carrier] = {}

    def carrier(self, queue: str) -> Carrier:
        """Return what takes the calls of a queue."""
        if queue not in self._carriers:
            self._carriers[queue] = self.push(queue) if queue in self._pushed else PullCarrier(self.pull(queue))
        return self._carriers[queue]

    def pull(self, queue: str) -> PullQueue:
        if queue in self._pushed:
            raise ConfigError(f"queue {queue} is one of TALLY_PUSH_QUEUES: nothing can be leased from it")
        return PullQueue(self._store, queue, clock=self._clock, random=self._random, shards=self._shards)

    def push(self, queue: str) -> PushQueue:
        if self._dispatcher is None or self._target is None or queue not in self._pushed:
            raise ConfigError(f"queue {queue} is not one of TALLY_PUSH_QUEUES")
        return PushQueue(
            queue,
            self._dispatcher,
            target=self._target,
            clock=self._clock,
            random=self._random,
            beyond=self._requests,
        )

    def executor(self, weights: Mapping[str, int], *, bounds: Bounds, strict: bool = False) -> PullExecutor:
        """Return what works on pull queues, by weight; call it on the event loop that it will run on."""
        self._registry.check()
        pool = WorkerPool(bounds.at_least)
        sources = [Source(self.pull(queue), weight) for queue, weight in weights.items()]
        return PullExecutor(sources, self._runner(pool), pool, clock=self._clock, bounds=bounds, strict=strict)

    def outbox(self) -> Outbox:
        """Return what adds the tasks that were written in transactions to their queues, pushed or pulled."""
        return Outbox(self._store, self._adder, clock=self._clock, random=self._random)

    def parking(self) -> Parking:
        """Return what lists, replays and drops all that is parked."""
        return Parking(self.tasks, self.outbox())

    def sweeper(self, queues: Iterable[str]) -> Sweeper:
        """Return what a worker on these pull queues (there may be none) does beside its work."""
        gatherer = self.gatherer()
        swept = [*(self.pull(queue) for queue in queues), *gatherer.queues()]
        return Sweeper(self.outbox(), self.tasks.runs, swept, gatherer, random=self._random)

    def gatherer(self) -> Gatherer:
        """Return what hands gathered items to their functions."""
        return Gatherer(self._registry, self.tasks.gathering, self.outbox(), clock=self._clock, random=self._random)

    def _adder(self, queue: str) -> Adder:
        if queue in self._pushed:
            return _Pushed(queue, self.carrier(queue), self.tasks, self._clock)
        return _Pulled(self.pull(queue), self.tasks, self._clock)

    def receiver(self) -> PushReceiver:
        """Return what runs pushed calls; call it on the event loop that it will run on."""
        self._registry.check()
        return PushReceiver(
            self._runner(WorkerPool(PUSHED_AT_ONCE)),
            self.carrier,
            verifier=self._verifier,
            audience="" if self._target is None else self._target.audience,
            callers=self._callers,
        )

    async def close(self) -> None:
        """Close the client of the push queues."""
        if self._dispatcher is not None:
            await self._dispatcher.close()

    def _runner(self, pool: WorkerPool) -> Runner:
        return Runner(
            self._registry,
            self.tasks.runs,
            self._store,
            pool,
            clock=self._clock,
            random=self._random,
            worker=self._worker,
            admission=self._admission,
        )


class _Pushed:
    """A push queue that takes tasks which are calls of functions, as `Deferred.task` gives them."""

    def __init__(self, queue: str, carrier: Carrier, tasks: Tasks, clock: Clock) -> None:
        self._queue = queue
        self._carrier = carrier
        self._tasks = tasks
        self._clock = clock

    async def add(self, task: Task) -> Outcome:
        name = task.identity(self._queue) or ""
        due = task.due(self._clock.now())
        delivery = Delivery(queue=self._queue, id=name, payload=task.payload, due=due, hop=0, headers=task.headers)
        await self._carrier.carry(delivery)
        await self._tasks.note(delivery)
        return Outcome(status="added", name=name)


class _Pulled:
    """A pull queue that takes any tasks; of calls of functions it sees to their records."""

    def __init__(self, queue: PullQueue, tasks: Tasks, clock: Clock) -> None:
        self._queue = queue
        self._tasks = tasks
        self._clock = clock

    async def add(self, task: Task) -> Outcome:
        outcome = await self._queue.add(task)
        if outcome.status == "added" and outcome.name is not None:
            due = task.due(self._clock.now())
            await self._tasks.note(Delivery(queue=self._queue.name, id=outcome.name, payload=task.payload, due=due))
        return outcome
