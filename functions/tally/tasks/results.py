"""What became of a call: its state, attempts, progress, result or error, through a handle that any process can make."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from tally.clock import Clock
from tally.errors import NotFound, TaskFailed
from tally.ports import Store
from tally.tasks import blobs
from tally.tasks.codec import Codec
from tally.tasks.run import ENDED, Run, State, cancel
from tally.tasks.runs import Runs

_FIRST_LOOK, _LAST_LOOK = 0.02, 1.0  # seconds between looks at the record, doubling


class Results:
    """Reads runs; `codec_of` gives the codec of a function by name, None where this program does not have it."""

    def __init__(self, runs: Runs, store: Store, clock: Clock, codec_of: Callable[[str], Codec | None]) -> None:
        self._runs = runs
        self._store = store
        self._clock = clock
        self._codec_of = codec_of

    async def status(self, run_id: str) -> Run:
        return await self._runs.get(run_id)

    async def wait(self, run_id: str, timeout: float) -> Run:
        """Return the run once it has ended. Raises TimeoutError, NotFound."""
        pause = _FIRST_LOOK
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while (run := await self._runs.get(run_id)).state not in ENDED:
            left = until - loop.time()
            if left <= 0:
                raise TimeoutError(f"run {run_id} is {run.state} after {timeout} s")
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LAST_LOOK)
        return run

    async def value(self, run: Run) -> Any:
        """Return the result of a run that has ended, by the function's return annotation. Raises TaskFailed."""
        if run.state is not State.DONE:
            raise TaskFailed(
                f"task {run.call} ({run.id}) {run.state}: {run.error[:500]}", state=run.state, traceback=run.traceback
            )
        data = await blobs.get(self._store, run.blob) if run.blob else bytes(run.result)
        codec = self._codec_of(run.call)
        return msgspec.json.decode(data) if codec is None else codec.decode_result(data)

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run; return False when it had ended. Raises NotFound.

        A run that has not started never will; an async function that runs is cancelled within 15 s; a plain
        one goes on, and its outcome is dropped.
        """
        ended = False

        def step(run: Run | None) -> Run:
            nonlocal ended
            if run is None:
                raise NotFound(f"no run {run_id!r}: never made, forgotten or expired")
            ended = run.state in ENDED and run.state is not State.CANCELLED
            return cancel(run, now=self._clock.now())

        await self._runs.change(run_id, step)
        return not ended

    async def forget(self, run_id: str) -> None:
        await self._runs.forget(run_id)


class Handle:
    """A call that was made. `created` is False when its name was taken: this is the handle of the call that has it."""

    def __init__(self, run_id: str, results: Results, *, created: bool = True) -> None:
        self.id = run_id
        self.created = created
        self._results = results

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    async def status(self) -> Run:
        """Return state, attempts, progress, error, traceback. Raises NotFound when forgotten or expired."""
        return await self._results.status(self.id)

    async def result(self, timeout: float) -> Any:
        """Wait up to `timeout` seconds for the result. Raises TimeoutError, TaskFailed, NotFound."""
        return await self._results.value(await self._results.wait(self.id, timeout))

    async def cancel(self) -> bool:
        """Stop it if it has not ended; see `Results.cancel`."""
        return await self._results.cancel(self.id)

    async def forget(self) -> None:
        """Drop the record with its result; a run still to come is not stopped."""
        await self._results.forget(self.id)
