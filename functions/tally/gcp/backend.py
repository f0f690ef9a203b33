"""The Backend on Google Cloud or on the emulators."""

from tally.config import Settings
from tally.gcp import topology
from tally.gcp.clients import Clients
from tally.gcp.datastore import DatastoreStore
from tally.gcp.pubsub import PubSubPublisher, PubSubPuller
from tally.ports import Publisher, Puller, Store


class GoogleBackend:
    store: Store
    publisher: Publisher

    def __init__(self, settings: Settings, clients: Clients) -> None:
        self._settings = settings
        self._clients = clients
        self.store = DatastoreStore(clients, settings.project, settings.database)
        self.publisher = PubSubPublisher(clients, settings.project)

    def puller(self, subscription: str) -> Puller:
        return PubSubPuller(self._clients, self._settings.project, subscription)

    async def prepare(self) -> None:
        """Create the votes' and the dead letters' topics and subscriptions on an emulator; nothing on the cloud."""
        settings = self._settings
        if settings.backend == "cloud":
            return
        for topic, subscription in settings.channels:
            await topology.create(self._clients, settings.project, topic=topic, subscription=subscription)

    async def close(self) -> None:
        await self._clients.close()
