"""All that is parked, in one list: calls of task functions by the ids of their runs, outbox entries as `outbox:ID`."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from tally.tasks.client import Tasks
from tally.tasks.outbox import Outbox
from tally.tasks.parked import Parked

_ENTRY = "outbox:"  # no run's id holds a colon


class Parking:
    def __init__(self, tasks: Tasks, outbox: Outbox) -> None:
        self._tasks = tasks
        self._outbox = outbox

    async def all(self) -> AsyncIterator[Parked]:
        async for call in self._tasks.parked():
            yield call
        async for entry in self._outbox.parked():
            yield replace(entry, id=_ENTRY + entry.id)

    async def replay(self, parked_id: str) -> bool:
        """Bring one to its queue again; say whether the queue took it. Raises NotFound, BackendError."""
        if parked_id.startswith(_ENTRY):
            return await self._outbox.replay(parked_id.removeprefix(_ENTRY))
        await self._tasks.replay(parked_id)
        return True

    async def drop(self, parked_id: str) -> None:
        """Delete one for good. Raises NotFound, BackendError."""
        if parked_id.startswith(_ENTRY):
            await self._outbox.drop(parked_id.removeprefix(_ENTRY))
        else:
            await self._tasks.drop(parked_id)
