"""Runs deliveries: claim the run, find the function, call it, write down what came of it. The core of push and pull.

At least once: a run whose worker dies is claimed by another once its claim has expired. Not twice at once: a delivery
that meets a live claim comes back later. A worker that was suspended past its claim may go on with the function, but
writes nothing any more: each write presents the claim's token. Whoever brings the deliveries acts on the answer: None
settles the delivery, `Again` brings it back.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from tally import limits
from tally.clock import SECOND, Clock
from tally.errors import BackendError, InvalidInput
from tally.logs import event
from tally.ports import Store, Write
from tally.tasks import blobs, events
from tally.tasks import run as steps
from tally.tasks.admission import FREE, Admission, Admitted, Full
from tally.tasks.attempt import DEFAULTS, Attempt, fresh
from tally.tasks.call import Call, Delivery, decode
from tally.tasks.codec import Undecodable
from tally.tasks.context import running
from tally.tasks.deferred import Deferred, Registry
from tally.tasks.events import RunEvent
from tally.tasks.middleware import call, is_cancelled, quietly, tell
from tally.tasks.parked import Parked, write
from tally.tasks.pool import WorkerPool
from tally.tasks.pool_worker import is_async
from tally.tasks.pulse import LEASE, Pulse
from tally.tasks.resolve import arguments, resolve
from tally.tasks.run import Claimed, Later, Over, Run, State
from tally.tasks.runs import Gone, Runs
from tally.tasks.soft_timeout import limited
from tally.tasks.verdict import EXPIRED, INTERRUPTED, LATE, Finish, Wait, judge

_LAST_WORDS = 2.0  # seconds to write that a shutdown ended an attempt


@dataclass(frozen=True, slots=True)
class Again:
    """Bring the delivery again at `at` (µs); `hop` is its number on a push queue. `full`: it waits for a place only."""

    at: int
    hop: int | None
    full: bool = False


class Runner:
    """`pool` runs the functions; its size bounds how many at once. `admission` None: no function's limit counts.

    `patient=False` ignores times (eager mode).
    """

    def __init__(
        self,
        registry: Registry,
        runs: Runs,
        store: Store,
        pool: WorkerPool,
        *,
        clock: Clock,
        random: Random,
        worker: str,
        admission: Admission | None = None,
        patient: bool = True,
    ) -> None:
        self._registry = registry
        self._runs = runs
        self._store = store
        self._pool = pool
        self._clock = clock
        self._random = random
        self._worker = worker
        self._admission = admission
        self._patient = patient

    async def run(self, delivery: Delivery) -> Again | None:
        """Do what a delivery asks for. Raises BackendError when the store is out: the delivery is not settled then."""
        try:
            call = decode(delivery.payload)
        except Undecodable as error:
            await self._park_at_once(delivery, error)
            return None
        token = f"{self._random.getrandbits(128):032x}"
        if self._admission is None:
            return await self._run(delivery, call, token, FREE)
        admitted = await self._admission.enter(call, call.id or delivery.id, token)
        try:
            return await self._run(delivery, call, token, admitted)
        finally:
            await self._admission.leave(admitted)

    async def _run(self, delivery: Delivery, call: Call, token: str, admitted: Admitted | Full) -> Again | None:
        found = await self._claim(delivery, call, token, admitted.at if isinstance(admitted, Full) else None)
        if isinstance(found, Later):
            full = isinstance(admitted, Full) and found.at == admitted.at
            return Again(found.at, None if delivery.hop is None else found.run.hop, full)
        if not isinstance(found, Claimed):
            return None
        deferred = self._registry.functions.get(call.call)
        options = DEFAULTS if deferred is None else deferred.options
        pulse = Pulse(self._runs, self._clock, found.run.id, token, options.timeout)
        attempt = Attempt(delivery=delivery, call=call, run=found.run, token=token, pulse=pulse, options=options)
        with suppress(Gone):
            if isinstance(admitted, Admitted) and self._clock.now() >= admitted.until:
                return await self._settle(attempt, LATE)
            return await self._perform(attempt)
        return None

    async def _claim(
        self, delivery: Delivery, call: Call, token: str, full_until: int | None
    ) -> Claimed | Later | Over | None:
        found: Claimed | Later | Over | None = None

        def step(stored: Run | None) -> Run:
            nonlocal found
            run = fresh(delivery, call, self._clock.now()) if stored is None else stored
            if call.epoch and run.epoch != call.epoch:
                found = None  # left over from an earlier run of this name
                return run
            found = steps.claim(
                run,
                token=token,
                worker=self._worker,
                now=self._clock.now() if self._patient else max(self._clock.now(), run.due),
                lease=round(LEASE * SECOND),
                hop=delivery.hop,
                full_until=full_until,
            )
            return found.run

        await self._runs.change(call.id or delivery.id, step)
        return found

    async def _perform(self, attempt: Attempt) -> Again | None:
        if attempt.call.ends is not None and self._clock.now() >= attempt.call.ends:
            return await self._settle(attempt, EXPIRED)
        data = await arguments(self._store, attempt.call)
        options = attempt.options
        try:
            await self._tell(events.started(attempt.run, self._worker))
            deferred, args, kwargs = resolve(self._registry, attempt.call, data)
            options = deferred.options  # an upgraded call's are another function's
            result = await self._call(attempt, deferred, args, kwargs)
        except BaseException as error:  # whatever a function raises, the pool hands on
            if attempt.pulse.lost:
                event("task-lost", task=attempt.call.call, run=attempt.run.id, attempt=attempt.run.attempt)
                await self._lost(attempt)
                return None
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                await self._last_words(attempt)
                raise
            verdict = judge(
                error,
                attempt.run,
                policy=attempt.call.retry or options.retry,
                failures=options.failures,
                now=self._clock.now(),
                random=self._random,
            )
            return await self._settle(attempt, verdict)
        await self._done(attempt, deferred, result)
        return None

    async def _call(
        self, attempt: Attempt, deferred: Deferred[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the function inside the middleware, its claim kept alive meanwhile."""
        middleware = self._registry.middleware
        context = attempt.context(self._worker, deferred.codec.named(args, kwargs))
        token = running.set(context)
        try:
            for layer in middleware:
                await call(layer.before, context)
            timeout = deferred.options.timeout if is_async(deferred.function) else None
            function = limited(deferred.function, deferred.options.soft_timeout)
            future = self._pool.submit_with(timeout, function, *args, **kwargs)
            result = await attempt.pulse.keep_alive(future)
        except BaseException as error:
            if not attempt.pulse.lost:
                await quietly([partial(layer.on_error, context, error) for layer in reversed(middleware)])
            raise
        finally:
            running.reset(token)
        await quietly([partial(layer.after, context, result) for layer in reversed(middleware)])
        return result

    async def _done(self, attempt: Attempt, deferred: Deferred[..., Any], result: Any) -> None:
        """Write the result down. One that cannot be written fails the run for good: its effect is there already."""
        try:
            data = deferred.codec.encode_result(result)
            written, blob = await self._write(attempt, data)
        except InvalidInput as error:
            await self._settle(attempt, Finish(state=State.FAILED, error=error.message))
            return
        end = partial(steps.end, state=State.DONE, result=written, blob=blob)
        await self._end(attempt, end)

    async def _write(self, attempt: Attempt, data: bytes) -> tuple[msgspec.Raw, blobs.Blob | None]:
        if len(data) <= limits.RUN_INLINE_BYTES:
            return msgspec.Raw(data), None
        keep = attempt.run.keep
        expires = None if keep is None else self._clock.now() + round((keep + 2 * steps.KEEP_MIN) * SECOND)
        return steps.NULL, await blobs.put(self._store, data, expires=expires, random=self._random)

    async def _settle(self, attempt: Attempt, verdict: Finish | Wait) -> Again | None:
        if isinstance(verdict, Wait):
            return await self._wait(attempt, verdict)
        end = partial(steps.end, state=verdict.state, error=verdict.error, traceback=verdict.traceback)
        await self._end(attempt, end, verdict.parked, verdict.error)
        return None

    async def _end(
        self, attempt: Attempt, end: Callable[..., Run | None], parked: str | None = None, error: str = ""
    ) -> None:
        """End the run, and park what was delivered in the same commit."""
        extra = () if parked is None else (self._park(attempt.delivery, attempt.call, parked, error),)
        own = partial(end, token=attempt.token, progress=attempt.pulse.progress)
        run = await self._runs.change(attempt.run.id, _ours(lambda run: own(run, now=self._clock.now())), extra)
        event(
            "task-ended" if parked is None else "task-parked",
            level=logging.INFO if parked is None else logging.ERROR,
            task=run.call,
            run=run.id,
            attempt=run.attempt,
            state=str(run.state),
            parked=parked,
        )
        if run.settled == attempt.token and run.state in events.OVER:
            await self._tell(events.ended(run, attempt.run, self._worker, at=self._clock.now(), parked=parked))
        else:
            await self._lost(attempt)

    async def _wait(self, attempt: Attempt, verdict: Wait) -> Again | None:
        """Write down an attempt that another follows; None when the claim was lost meanwhile."""
        push = attempt.delivery.hop is not None
        wait = partial(
            steps.wait,
            token=attempt.token,
            due=self._clock.now() + round(verdict.delay * SECOND),
            outcome=verdict.outcome,
            error=verdict.error,
            traceback=verdict.traceback,
            counts=verdict.counts,
            push=push,
        )
        run = await self._runs.change(attempt.run.id, _ours(lambda run: wait(run, now=self._clock.now())))
        event("task-again", task=run.call, run=run.id, attempt=run.attempt, outcome=verdict.outcome, in_s=verdict.delay)
        if run.settled != attempt.token or run.state is not State.WAITING:
            await self._lost(attempt)
            return None
        delay = verdict.delay
        await self._tell(events.again(run, attempt.run, self._worker, at=self._clock.now(), delay=delay))
        return Again(run.due, run.hop if push else None)

    async def _last_words(self, attempt: Attempt) -> None:
        """A shutdown ended the attempt: say so, that the next need not wait for the claim to expire."""
        words = asyncio.ensure_future(self._wait(attempt, INTERRUPTED))
        await asyncio.wait([words], timeout=_LAST_WORDS)
        words.cancel()  # if the store has not answered: nobody would hear what it says later
        with suppress(BackendError, asyncio.CancelledError, Gone):
            await words

    async def _park_at_once(self, delivery: Delivery, error: Undecodable) -> None:
        """Park what is no call at all: trying again cannot help."""
        now = self._clock.now()

        def step(stored: Run | None) -> Run:
            run = stored or fresh(delivery, Call(v=1, call=""), now)
            return replace(run, state=State.PARKED, error=steps.short(error.message), ended=now)

        parked = "undecodable"
        run = await self._runs.change(delivery.id, step, (self._park(delivery, None, parked, error.message),))
        event("task-parked", level=logging.ERROR, task="", run=delivery.id, state="parked", parked=parked)
        await self._tell(events.ended(run, run, self._worker, at=now, parked=parked))

    async def _lost(self, attempt: Attempt) -> None:
        await self._tell(events.lost(attempt.run, self._worker, at=self._clock.now()))

    async def _tell(self, happened: list[RunEvent]) -> None:
        await tell(self._registry.middleware, happened)

    def _park(self, delivery: Delivery, call: Call | None, reason: str, error: str) -> Write:
        return write(
            Parked(
                id=delivery.id if call is None else call.id or delivery.id,
                queue=delivery.queue,
                call="" if call is None else call.call,
                reason=reason,
                error=steps.short(error),
                at=self._clock.now(),
                payload=delivery.payload,
                headers=dict(delivery.headers),
                epoch=delivery.epoch,
            )
        )


def _ours(step: Callable[[Run], Run | None]) -> Callable[[Run | None], Run]:
    """Make a change of a claimed run one that leaves the record alone when the claim is ours no more."""

    def change(stored: Run | None) -> Run:
        if stored is None:
            raise Gone
        return step(stored) or stored

    return change
