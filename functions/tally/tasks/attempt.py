"""One attempt at a run: what was delivered, whose claim it is, and what its function may know of it."""

import asyncio
from dataclasses import dataclass
from typing import Any

from tally.tasks.call import Call, Delivery
from tally.tasks.context import Context
from tally.tasks.deferred import Options
from tally.tasks.pulse import Pulse
from tally.tasks.run import Run
from tally.tasks.task import TRACE_HEADER

DEFAULTS = Options()  # for calls of functions that are not registered here


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    delivery: Delivery
    call: Call
    run: Run
    token: str
    pulse: Pulse
    options: Options

    def context(self, worker: str, arguments: dict[str, Any]) -> Context:
        loop = asyncio.get_running_loop()
        return Context(
            id=self.run.id,
            name=self.call.call,
            attempt=self.run.attempt,
            queue=self.delivery.queue,
            eta=self.run.due,
            worker=worker,
            deadline=loop.time() + self.options.timeout,
            clock=loop.time,
            trace=self.delivery.headers.get(TRACE_HEADER),
            headers=self.delivery.headers,
            arguments=arguments,
            report=self.pulse.report,
            loop=loop,
        )


def fresh(delivery: Delivery, call: Call, now: int) -> Run:
    """Return the record of a call that was enqueued without one: in a transaction, or by another language."""
    return Run(
        id=call.id or delivery.id,
        call=call.call,
        queue=delivery.queue,
        epoch=call.epoch or now,
        due=call.due or delivery.due or now,
        keep=DEFAULTS.keep if call.keep == -1.0 else call.keep,
        hop=delivery.hop or 0,
    )
