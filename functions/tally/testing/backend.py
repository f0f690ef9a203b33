"""A Backend of the fakes: what bootstrap opens elsewhere, with nothing outside the process."""

from tally.clock import Clock
from tally.ports import Publisher, Puller, Store
from tally.testing.clock import VirtualClock
from tally.testing.pubsub import FakePubSub
from tally.testing.store import FakeStore


class FakeBackend:
    """Has the topics and subscriptions of the settings' defaults. Its ports may be wrapped before use."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        clock = clock or VirtualClock()
        self.pubsub = FakePubSub(clock=clock)
        self.store: Store = FakeStore(clock=clock)
        self.publisher: Publisher = self.pubsub

    def puller(self, subscription: str) -> Puller:
        return self.pubsub.puller(subscription)

    async def prepare(self) -> None:
        for name in ("votes", "votes-dead"):
            self.pubsub.create_topic(name)
            self.pubsub.create_subscription(name, name)

    async def close(self) -> None:
        """Do nothing: what is stored stays for the test to look at."""
