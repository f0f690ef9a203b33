"""Enqueues calls and finds them again: what `call`, handles and the `tally task` commands talk to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from tally import limits
from tally.clock import SECOND, Clock, Stamps
from tally.errors import NotFound, Refused, Unavailable
from tally.ports import Store
from tally.retry import full_jitter
from tally.tasks import blobs, gather
from tally.tasks.attempt import fresh
from tally.tasks.call import VERSION, Call, Carrier, Delivery, decode, digest, encode
from tally.tasks.codec import Codec, Undecodable
from tally.tasks.deferred import Deferred, Options, Registry, Request
from tally.tasks.outcome import Outcome
from tally.tasks.parked import Parked, ParkedCalls
from tally.tasks.queue import PullQueue
from tally.tasks.results import Handle, Results
from tally.tasks.run import ENDED, UNRUN, Run, State, hurry
from tally.tasks.runs import Runs, restarted
from tally.tasks.task import Unique, seconds

_TRIES = 4
OPTIONS = Options()  # for calls of functions that this program does not have


class Tasks:
    """The task functions of one program on one backend. `carrier` finds what takes the calls of a queue.

    With `at_once` times are ignored: each call is due when it is made (eager mode).
    """

    def __init__(
        self,
        registry: Registry,
        store: Store,
        carrier: Callable[[str], Carrier],
        *,
        clock: Clock,
        random: Random,
        at_once: bool = False,
    ) -> None:
        self.registry = registry
        self.runs = Runs(store, clock, random)
        self._parked = ParkedCalls(store)
        self._results = Results(self.runs, store, clock, self._codec_of)
        self._store = store
        self._carrier = carrier
        self._clock = clock
        self._epochs = Stamps(clock)
        self._random = random
        self._at_once = at_once
        self._gathering: dict[str, PullQueue] = {}

    async def enqueue(self, request: Request) -> Handle:
        """Store the run, then give the task to its queue. A call of a name that is taken is the call that has it.

        Raises Unavailable when the queue or the store did not answer: the call may be in, and calling again by the
        same name is safe.
        """
        now = self._clock.now()
        run = self._new_run(request, now)
        stored, created = await self._open(run, request, now)
        if created or stored.state is State.QUEUED:
            await self._carry(await self._delivery(request, stored, now))
        return Handle(stored.id, self._results, created=created)

    async def gather(self, function: Deferred[..., Any], group: str, arguments: bytes, name: str | None) -> Outcome:
        """Add an item to a group of a function; see `Deferred.gather`. Eager: call the function with it alone."""
        task = gather.item(arguments, group, name)
        if self._at_once:
            args, kwargs = function.codec.decode(arguments)
            await function.call(*args, **kwargs)
            return Outcome(status="added", name=name)
        return await self.gathering(gather.queue_name(function.name)).add(task)

    def gathering(self, name: str) -> PullQueue:
        """Return a queue in which items wait, in exact order."""
        queue = self._gathering.get(name)
        if queue is None:
            queue = PullQueue(self._store, name, clock=self._clock, random=self._random, shards=1)
            self._gathering[name] = queue
        return queue

    def handle(self, run_id: str) -> Handle:
        """Return the handle of a call made before, here or elsewhere."""
        return Handle(run_id, self._results)

    async def run_now(self, run_id: str) -> bool:
        """Start a run that waits for its time or its next attempt now; False when it does not wait. Raises NotFound."""

        def step(run: Run | None) -> Run:
            if run is None:
                raise NotFound(f"no run {run_id!r}: never made, forgotten or expired")
            return hurry(run, now=self._clock.now())

        run = await self.runs.change(run_id, step)
        if run.state not in (State.QUEUED, State.WAITING):
            return False
        carrier = self._carrier(run.queue)
        ours, outbox = (
            Delivery(queue=run.queue, id=run.id, payload=b"", epoch=epoch, hop=run.hop).name for epoch in (run.epoch, 0)
        )
        for name in (ours, outbox, run.id):  # the last is the outbox's on a pull queue
            if await carrier.hurry(name):
                return True
        return False

    async def note(self, delivery: Delivery) -> None:
        """Store the run of a call that is in its queue without one, so that it is seen, hastened and cancelled there.

        What is no call is left alone, and so is a run that is there.
        """
        with suppress(Undecodable):
            call = decode(delivery.payload)
            await self.runs.change(
                call.id or delivery.id, lambda stored: stored or fresh(delivery, call, self._clock.now())
            )

    def parked(self) -> AsyncIterator[Parked]:
        """Every call that could not be run or was given up."""
        return self._parked.all()

    async def replay(self, run_id: str) -> Handle:
        """Enqueue a parked call again, with all its attempts before it. Raises NotFound, Unavailable."""
        parked, version = await self._parked.get(run_id)
        epoch = self._epochs.next()
        try:
            call = replace(decode(parked.payload), id=parked.id, epoch=epoch, due=epoch, ends=None)
            payload, name = encode(call), call.call
        except Undecodable:
            payload, name = parked.payload, parked.call

        def step(run: Run | None) -> Run:
            if run is None:
                run = Run(id=run_id, call=name, queue=parked.queue, epoch=epoch, due=epoch, keep=OPTIONS.keep)
            return restarted(run, epoch=epoch)

        await self.runs.change(run_id, step)
        await self._carry(
            Delivery(
                queue=parked.queue,
                id=run_id,
                payload=payload,
                epoch=epoch,
                due=epoch,
                hop=0,
                timeout=self._timeout(name),
                headers=parked.headers,
            )
        )
        with suppress(Refused):  # it has run since, and was parked anew
            await self._parked.drop(run_id, version)
        return self.handle(run_id)

    async def drop(self, run_id: str) -> None:
        """Drop a parked call for good; the record of its run stays for its time. Raises NotFound, BackendError."""
        _, version = await self._parked.get(run_id)
        await self._parked.drop(run_id, version)

    def _new_run(self, request: Request, now: int) -> Run:
        identity = request.task.identity(request.queue)
        return Run(
            id=f"{self._random.getrandbits(128):032x}" if identity is None else digest(request.queue, identity),
            call=request.function.name,
            queue=request.queue,
            epoch=self._epochs.next(),
            due=now if self._at_once else request.task.due(now),
            keep=request.keep,
        )

    async def _open(self, run: Run, request: Request, now: int) -> tuple[Run, bool]:
        unique = request.task.unique

        def step(stored: Run | None) -> Run:
            free = stored is None or (unique is not None and _over(stored, unique, now))
            return run if stored is None or free else stored

        opened = await self.runs.change(run.id, step)
        return opened, opened.epoch == run.epoch

    async def _delivery(self, request: Request, run: Run, now: int) -> Delivery:
        arguments, blob = request.arguments, None
        if len(arguments) > limits.RUN_INLINE_BYTES:
            blob = await blobs.put(self._store, arguments, expires=run.due + UNRUN, random=self._random)
            arguments = b"{}"
        call = Call(
            v=VERSION,
            call=run.call,
            arguments=msgspec.Raw(arguments),
            id=run.id,
            epoch=run.epoch,
            due=run.due,
            ends=request.task.ends(now),
            keep=request.keep,
            retry=request.task.retry,
            blob=blob,
        )
        return Delivery(
            queue=run.queue,
            id=run.id,
            payload=encode(call),
            epoch=run.epoch,
            due=run.due,
            hop=0,
            tag=request.task.tag,
            timeout=request.function.options.timeout,
            headers=dict(request.task.headers),
        )

    async def _carry(self, delivery: Delivery) -> None:
        """Give a task to its queue. The name makes trying again safe after an unknown outcome."""
        carrier = self._carrier(delivery.queue)
        for attempt in range(1, _TRIES + 1):
            try:
                await carrier.carry(delivery)
                return
            except Unavailable:
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(full_jitter(attempt, base=0.1, cap=2.0, random=self._random))

    def _codec_of(self, name: str) -> Codec | None:
        deferred = self.registry.functions.get(name)
        return None if deferred is None else deferred.codec

    def _timeout(self, name: str) -> float:
        deferred = self.registry.functions.get(name)
        return OPTIONS.timeout if deferred is None else deferred.options.timeout


def _over(run: Run, unique: Unique, now: int) -> bool:
    period = round(seconds("unique.period", unique.period) * SECOND)
    return run.state in ENDED and run.epoch + period <= now
