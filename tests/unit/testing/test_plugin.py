import asyncio
from collections.abc import Callable

from tally.errors import BackendError
from tally.ports import Entity, Key, Outgoing, Received, Upsert
from tally.testing.backend import FakeBackend
from tally.testing.loop import VirtualLoop
from tally.testing.plan import Plan

KEY: Key = (("K", "a"),)


def test_a_disturbed_backend_fails_by_the_plan(
    tally_loop: VirtualLoop, tally_backend: FakeBackend, tally_faults: Callable[..., Plan]
) -> None:
    async def main() -> None:
        plan = tally_faults({"commit:refused": 0.5, "publish:slow": 1.0, "message:copied": 1.0}, seed=3)
        await tally_backend.prepare()
        failures = 0
        for _ in range(20):
            try:
                await tally_backend.store.commit([Upsert(Entity(key=KEY, properties={}))])
            except BackendError:
                failures += 1
        await tally_backend.publisher.publish("votes", [Outgoing(b"1", {})])
        puller = tally_backend.puller("votes")
        received: list[Received] = []
        while len(received) < 2:
            received += await puller.pull(10)
        assert {message.message_id for message in received} == {"1"}
        assert plan.fired["commit:refused"] == failures > 0
        assert plan.fired["publish:slow"] == 1

    tally_loop.run(main())


def test_without_faults_a_backend_answers_at_once(tally_loop: VirtualLoop, tally_backend: FakeBackend) -> None:
    async def main() -> float:
        await tally_backend.prepare()
        await tally_backend.publisher.publish("votes", [Outgoing(b"1", {})])
        assert len(await tally_backend.puller("votes").pull(1)) == 1
        return asyncio.get_running_loop().time()

    assert tally_loop.run(main()) == 0
