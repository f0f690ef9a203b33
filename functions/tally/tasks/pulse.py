"""The heartbeat of a run: keeps its claim, carries its progress, and ends the call when the claim is lost."""

import asyncio
import logging
from functools import partial
from typing import Any

from tally.clock import SECOND, Clock
from tally.errors import BackendError
from tally.logs import event
from tally.tasks import run as steps
from tally.tasks.run import Run
from tally.tasks.runs import Gone, Runs

LEASE = 60.0  # seconds that a claim holds without a beat: how long the run of a dead worker waits for another
BEAT = 15.0  # seconds between beats
_PROGRESS = 1.0  # seconds between beats that only carry progress


class Pulse:
    """`lost` says that the run was cancelled or taken over: what comes of it then is nobody's business."""

    def __init__(self, runs: Runs, clock: Clock, run_id: str, token: str, timeout: float) -> None:
        self.progress: bytes | None = None
        self.lost = False
        self._runs = runs
        self._clock = clock
        self._run_id = run_id
        self._token = token
        self._life = 2 * timeout + LEASE
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def report(self, progress: bytes) -> None:
        """Take progress to show, from any thread."""
        self.progress = progress
        self._loop.call_soon_threadsafe(self._news.set)

    async def keep_alive(self, future: "asyncio.Future[Any]") -> Any:
        """Return the future's result; beat until then, at most for twice the timeout and a lease."""
        beating = asyncio.create_task(self._beat(future))
        try:
            return await future
        finally:
            beating.cancel()

    async def _beat(self, future: "asyncio.Future[Any]") -> None:
        stop = self._loop.time() + self._life
        while self._loop.time() < stop:
            await asyncio.sleep(_PROGRESS)
            try:
                async with asyncio.timeout(BEAT - _PROGRESS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            if not await self._alive():
                self.lost = True
                future.cancel()
                return
        event("task-overdue", level=logging.WARNING, run=self._run_id)

    async def _alive(self) -> bool:
        """Beat once; an outage of the store is no loss."""
        alive = True

        def step(stored: Run | None) -> Run:
            nonlocal alive
            if stored is None:
                raise Gone
            beaten = beat(stored, now=self._clock.now(), progress=self.progress)
            alive = beaten is not None
            return beaten or stored

        beat = partial(steps.beat, token=self._token, lease=round(LEASE * SECOND))
        try:
            await self._runs.change(self._run_id, step)
        except Gone:
            return False
        except BackendError as error:
            event("task-beat-failed", level=logging.WARNING, run=self._run_id, error=error)
            return True
        return alive
