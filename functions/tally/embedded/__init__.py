"""The ports on one SQLite file: no cloud, no Java, one machine. Beyond it the same code runs on Google Cloud.

Any number of processes share the file `tally.sqlite3` under TALLY_STATE. A process that dies at any moment, by SIGKILL
too, leaves every answered write; its leases run out and its messages come again. A process that is *stopped* while it
holds the turn to write stops the others' writes until it goes on or dies: they get Unavailable meanwhile.
"""

from tally.clock import Clock, SystemClock
from tally.config import Settings
from tally.embedded.backend import SqliteBackend


async def open(settings: Settings, clock: Clock | None = None) -> SqliteBackend:  # noqa: A001  # every backend is opened by this verb
    """Open the file, made if missing. Raises ConfigError for a place or a file that cannot serve, and Unavailable."""
    return await SqliteBackend.open(settings, clock or SystemClock())
