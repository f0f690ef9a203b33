"""A Backend of the fakes: what bootstrap opens elsewhere, with nothing outside the process."""

from tally.clock import Clock
from tally.ports import Publisher, Puller, Store
from tally.testing.clock import VirtualClock
from tally.testing.faults import FaultyPublisher, FaultyPuller, FaultyStore, Network, SeededManners
from tally.testing.plan import Plan
from tally.testing.pubsub import FakePubSub
from tally.testing.store import FakeStore


class FakeBackend:
    """Has the topics and subscriptions of the settings' defaults, and those of so many `streams`.

    `disturb` it before services are made of it.
    """

    def __init__(self, *, clock: Clock | None = None, streams: int = 1) -> None:
        clock = clock or VirtualClock()
        self.pubsub = FakePubSub(clock=clock)
        self.store: Store = FakeStore(clock=clock)
        self.publisher: Publisher = self.pubsub
        self._channels = ("votes", *(f"votes-{stream}" for stream in range(1, streams)), "votes-dead")
        self._network: Network | None = None

    def disturb(self, plan: Plan) -> None:
        """Put a network between the services and the fakes that fails by the plan, and let Pub/Sub misbehave by it."""
        self._network = Network(plan, waiting=("pull",))
        self.store = FaultyStore(self.store, self._network)
        self.publisher = FaultyPublisher(self.pubsub, self._network)
        self.pubsub.take_manners(SeededManners(plan))

    def puller(self, subscription: str) -> Puller:
        puller = self.pubsub.puller(subscription)
        return puller if self._network is None else FaultyPuller(puller, self._network)

    async def prepare(self) -> None:
        for name in self._channels:
            self.pubsub.create_topic(name)
            self.pubsub.create_subscription(name, name)

    async def close(self) -> None:
        """Do nothing: what is stored stays for the test to look at."""
