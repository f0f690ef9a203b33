"""The ports on Google Cloud and on its emulators: the only place that imports google.* and grpc."""

from tally.config import Settings
from tally.errors import ConfigError
from tally.gcp.backend import GoogleBackend
from tally.gcp.clients import Clients
from tally.ports import Backend


async def open(settings: Settings) -> Backend:  # noqa: A001 - every backend is opened by this verb
    """Open the ports on the cloud or on the emulators; nothing is connected before the first call.

    Raises ConfigError where an emulator's host is missing: an emulator's settings never reach the real cloud.
    """
    hosts = (settings.pubsub_emulator, settings.datastore_emulator)
    if settings.backend == "emulator" and not all(hosts):
        raise ConfigError("TALLY_BACKEND=emulator needs PUBSUB_EMULATOR_HOST and DATASTORE_EMULATOR_HOST")
    if settings.backend == "cloud" and any(hosts):
        raise ConfigError("TALLY_BACKEND=cloud, but an emulator host variable is set: unset one or the other")
    if settings.backend not in ("cloud", "emulator"):
        raise ConfigError(f"TALLY_BACKEND={settings.backend!r} is not one of Google's: want cloud or emulator")
    return GoogleBackend(settings, Clients(settings))
