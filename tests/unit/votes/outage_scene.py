"""The scene of an outage: voters that try again until their 202, two functions, a worker, and a service that goes away.

Time is virtual.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from tally.errors import BackendError, Busy
from tally.ports import Key, Lookup, Outgoing, Upsert, Write
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyPublisher, FaultyPuller, FaultyStore, Network
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan
from tally.testing.pubsub import FakePubSub
from tally.testing.store import FakeStore, key_of
from tally.votes import batch, keys, ledger
from tally.votes.batch import Vote
from tally.votes.intake import Cast
from tally.votes.polls import to_entity
from tally.votes.recount import recount
from tally.votes.worker import Worker
from tests.unit.votes.outage import DOWN, Outage, Row
from tests.unit.votes.pipeline import Function, ballot, ballots, ballots_of, letters, poll

VOTES_PER_SECOND, VOTES = 2, 200  # at most so many while it lasts
STRAY_EVERY = 5  # seconds between votes for an option that there is not: they become dead letters
WARM_UP, PATIENCE = 15, 400
MADE = poll(partitions=4)
POISONED = 2
POLL_KIND = to_entity(MADE).key[0][0]
_SHARDS = {keys.shard(MADE.id, number)[0][1] for number in range(MADE.partitions)}


class _Watched(FakePubSub):
    """Knows which messages of votes were published and which are settled."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.open: dict[str, None] = {}
        for name in ("votes", "votes-dead"):
            self.create_topic(name)
            self.create_subscription(name, name)
        self.puller("votes").on_settled = self.open.pop

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        ids = await super().publish(topic, messages)
        if topic == "votes":
            self.open.update(dict.fromkeys(ids))
        return ids


class _WorkersStore(FaultyStore):
    unreadable = False

    async def get(self, keys: Sequence[Key]) -> Lookup:
        if self.unreadable and keys[0][0][0] == POLL_KIND:
            raise DOWN
        return await super().get(keys)


class _WorkersPuller(FaultyPuller):
    extended = 0

    async def extend(self, ack_ids: Sequence[str], seconds: int) -> None:
        self.extended += len(ack_ids)
        await super().extend(ack_ids, seconds)


class _Voters:
    """Clients that vote, each until its 202; they wait longer each time."""

    def __init__(self, functions: Sequence[Function], seconds: int) -> None:
        self._seconds = seconds
        self.accepted: list[bytes] = []
        self.refused = 0
        self._functions = functions
        self._voting: set[asyncio.Task[None]] = set()

    async def come(self) -> None:
        number = 0
        while True:
            task = asyncio.create_task(self._vote(number))
            self._voting.add(task)
            task.add_done_callback(self._voting.discard)
            number += 1
            await asyncio.sleep(max(1 / VOTES_PER_SECOND, self._seconds / VOTES))

    async def done(self) -> None:
        await asyncio.gather(*self._voting)

    async def _vote(self, number: int) -> None:
        cast = Cast(option="red", voter=f"v-{number}")
        attempt = 0
        while True:
            try:
                receipt = await self._functions[(number + attempt) % 2].intake.vote(MADE.id, cast, None)
                break
            except Busy as busy:
                self.refused += 1
                await asyncio.sleep((busy.retry_after or 1) * min(2**attempt, 16))
                attempt += 1
        self.accepted.append(receipt.ballot)


class _Scene:
    def __init__(self, outage: Outage, seed: int) -> None:
        self.outage = outage
        self.clock = VirtualClock()
        self.store = FakeStore(clock=self.clock)
        self.pubsub = _Watched(self.clock)
        random = Random(seed)
        self.worker_plan, self.function_plan = (Plan(random, {}, latency=0.005) for _ in range(2))
        network = Network(self.worker_plan)
        self.workers_store = _WorkersStore(self.store, network)
        self.workers_puller = _WorkersPuller(self.pubsub.puller("votes"), network)
        functions = [Function(self.store, self.pubsub, self.clock, self.function_plan) for _ in range(2)]
        self.voters = _Voters(functions, outage.seconds)
        self.worker = Worker(
            self.workers_store,
            self.workers_puller,
            FaultyPublisher(self.pubsub, network),
            dead_letter_topic="votes-dead",
            clock=self.clock,
            random=random,
        )
        self.strays: set[bytes] = set()

    async def play(self) -> Row:
        await self.store.commit([Upsert(to_entity(MADE))])
        stop = asyncio.Event()
        running = asyncio.create_task(self.worker.run(stop))
        guests = [asyncio.create_task(self.voters.come()), asyncio.create_task(self._stray())]
        await asyncio.sleep(WARM_UP)
        assert self.worker.health().ok
        self._begin()
        watch = await self._watch()
        self._end()
        recovered = await self._recovered()
        for guest in guests:
            guest.cancel()
        await self.voters.done()
        await self._until(lambda: not self.pubsub.open and not self.worker._inbox.busy)
        assert self.worker.health().ok
        stop.set()
        assert await running == 0
        return await self._judge(watch, recovered)

    def _begin(self) -> None:
        for plan, calls in ((self.worker_plan, self.outage.worker), (self.function_plan, self.outage.function)):
            for call in calls:
                plan.break_down(call, self.outage.error)
            plan.latency = self.outage.latency
        if self.outage.poisoned:
            self.workers_store.poison = _poison
        self.workers_store.unreadable = self.outage.unreadable

    def _end(self) -> None:
        for plan in (self.worker_plan, self.function_plan):
            for call in (*self.outage.worker, *self.outage.function):
                plan.break_down(call, None)
            plan.latency = 0.005
        self.workers_store.poison = None
        self.workers_store.unreadable = False

    async def _watch(self) -> "_Watch":
        watch = _Watch()
        before, extended, lent = self._counted(), self.workers_puller.extended, self._neither_settled_nor_held()
        for second in range(self.outage.seconds):
            if second == self.outage.seconds // 2:
                watch.pulled = self.worker._inbox.next_number
            await asyncio.sleep(1)
            watch.look(self.worker, second + 1)
        watch.pulled = self.worker._inbox.next_number - watch.pulled
        watch.neighbours = self._counted() - before
        watch.extended = self.workers_puller.extended - extended
        watch.let_go = self._neither_settled_nor_held() - lent
        return watch

    def _neither_settled_nor_held(self) -> int:
        inbox = self.worker._inbox
        return inbox.next_number - inbox.settled_messages - len(inbox.held)

    def _counted(self) -> int:
        shards = (entity for entity in self.store.of_kind(keys.SHARD) if entity.key[0][1] in _SHARDS)
        return sum(ledger.parse_shard(entity).ballots for entity in shards)

    async def _recovered(self) -> int:
        """Wait until what had come in is settled and health is good; return the seconds."""
        begun = asyncio.get_running_loop().time()
        backlog = list(self.pubsub.open)
        await self._until(lambda: self.worker.health().ok and not any(each in self.pubsub.open for each in backlog))
        return round(asyncio.get_running_loop().time() - begun)

    async def _until(self, condition: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if condition():
                return
            await asyncio.sleep(1)
        raise TimeoutError(f"{self.outage}: not within {PATIENCE} s: {self.worker.health().body}")

    async def _stray(self) -> None:
        """Publish past the functions a vote for an option that the poll has not, now and then."""
        number = 0
        while True:
            stray = ballot("stray", number)
            number += 1
            self.strays.add(stray)
            data = batch.encode([Vote(MADE.id, "none", stray, self.clock.now())])
            await self.pubsub.publish("votes", [Outgoing(data, {})])
            await asyncio.sleep(STRAY_EVERY)

    async def _judge(self, watch: "_Watch", recovered: int) -> Row:
        counted = await recount(self.store, MADE)
        assert not counted.differences
        counted_ballots = ballots(counted.records)
        accepted = set(self.voters.accepted)
        dead = ballots_of(await letters(self.pubsub.puller("votes-dead")))
        return Row(
            outage=self.outage,
            held=watch.held,
            extended=watch.extended,
            let_go=watch.let_go,
            tried=watch.pulled,
            parked=tuple(sorted(watch.parked)),
            store_down=watch.store_down,
            neighbours=watch.neighbours,
            refused=self.voters.refused,
            unhealthy=watch.unhealthy,
            bad=watch.bad,
            recovered=recovered,
            accepted=len(accepted),
            lost=len(accepted - counted_ballots),
            doubled=self._counted() - len(accepted),
            dead_letters_lost=len(self.strays - dead),
            good_votes_dead=len(dead - self.strays),
        )


class _Watch:
    """What was seen of the worker during an outage."""

    def __init__(self) -> None:
        self.held = 0
        self.extended = 0
        self.let_go = 0
        self.pulled = 0
        self.neighbours = 0
        self.parked: set[int] = set()
        self.store_down = False
        self.unhealthy: int | None = None
        self.bad = 0

    def look(self, worker: Worker, second: int) -> None:
        health = worker.health()
        self.held = max(self.held, int(health.body["held"]))  # type: ignore[call-overload]  # an int
        self.parked.update(lane.partition for lane in worker._lanes.parked())
        self.store_down = self.store_down or bool(health.body["store_down"])
        self.bad += not health.ok
        if not health.ok and self.unhealthy is None:
            self.unhealthy = second


def _poison(writes: Sequence[Write]) -> BackendError | None:
    return DOWN if key_of(writes[0])[0] == keys.shard(MADE.id, POISONED)[0] else None


def run(outage: Outage, *, seed: int = 1) -> Row:
    async def main() -> Row:
        return await _Scene(outage, seed).play()

    with VirtualLoop() as loop:
        return loop.run(main())
