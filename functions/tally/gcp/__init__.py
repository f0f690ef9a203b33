"""The ports on Google Cloud and on its emulators: the only place that imports google.* and grpc."""

from tally.config import Settings
from tally.errors import ConfigError
from tally.gcp.backend import GoogleBackend
from tally.gcp.caller import OidcVerifier, identity_token
from tally.gcp.clients import Clients
from tally.gcp.cloud_tasks import CloudTasksDispatcher
from tally.ports import Backend, CallerVerifier

__all__ = ["identity_token", "open", "open_push"]


async def open(settings: Settings) -> Backend:  # noqa: A001  # every backend is opened by this verb
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


async def open_push(settings: Settings) -> tuple[CloudTasksDispatcher, CallerVerifier, str]:
    """Open Cloud Tasks, what verifies its calls, and name their account; on the emulator make the push queues.

    Raises ConfigError where an emulator's settings would reach the real service, or no account is set in the cloud.
    """
    emulator = settings.cloud_tasks_emulator
    if (settings.backend == "emulator") != bool(emulator):
        raise ConfigError(f"TALLY_BACKEND={settings.backend} with CLOUD_TASKS_EMULATOR_HOST={emulator!r}")
    account = settings.tasks_account or ("tasks@emulator.example" if emulator else "")
    if not account:
        raise ConfigError("TALLY_TASKS_ACCOUNT is not set: push tasks need the account that Cloud Tasks calls with")
    dispatcher = CloudTasksDispatcher(Clients(settings), settings.project, settings.location, account)
    if emulator:
        await dispatcher.prepare(settings.push_queues)
    return dispatcher, OidcVerifier(emulator, behind_iam=settings.run_task_iam), account
