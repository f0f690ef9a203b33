"""The proxy does to calls what its plan says, and nothing else."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest

from emulator.google import Flavour
from tally import config, gcp
from tally.errors import Refused, Unavailable
from tally.ports import Entity, Insert, Outgoing
from tests.chaos.proxy import FAULTS, Plan, proxy
from tests.conftest import Hosts

METHOD = "/service/Call"


@dataclass
class Upstream(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Echoes, keeps what it got, and fails requests that say so."""

    address: str = ""
    requests: list[bytes] = field(default_factory=list)
    metadata: dict[str, str | bytes] = field(default_factory=dict)

    def service(self, handler_call_details: Any) -> Any:
        async def handle(request: bytes, context: Any) -> bytes:
            self.requests.append(request)
            self.metadata = dict(context.invocation_metadata())
            if request == b"fail":
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "stale", (("detail-bin", b"\0"),))
            return request

        return grpc.unary_unary_rpc_method_handler(handle)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    fake = Upstream()
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((fake,))
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield fake
    await server.stop(0)


async def call(address: str, request: bytes = b"x", *, timeout: float = 5.0) -> bytes:
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        method = channel.unary_unary(METHOD, request_serializer=bytes, response_deserializer=bytes)
        reply: bytes = await method(request, timeout=timeout, metadata=(("x-route", "a=b"),))
        return reply


async def test_without_faults_calls_pass_unchanged(upstream: Upstream) -> None:
    async with proxy(upstream.address, Plan(1, {})) as address:
        assert await call(address, bytes(6_000_000)) == bytes(6_000_000)
        assert upstream.metadata["x-route"] == "a=b"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(address, b"fail")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "stale")
    trailing: Any = caught.value.trailing_metadata()
    assert ("detail-bin", b"\0") in tuple(trailing)


@pytest.mark.parametrize(
    ("fault", "applied"),
    [("refused", 0), ("request-lost", 0), ("failed-after", 1), ("reply-lost", 1)],
)
async def test_a_failing_fault_applies_the_call_or_not(upstream: Upstream, fault: str, applied: int) -> None:
    plan = Plan(1, {f"Call:{fault}": 1.0}, silence=0.1)
    async with proxy(upstream.address, plan) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(address)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert len(upstream.requests) == applied
    assert plan.fired == {f"Call:{fault}": 1}


@pytest.mark.parametrize(("fault", "applied"), [("request-lost", 0), ("reply-lost", 1)])
async def test_a_lost_call_lasts_until_the_clients_deadline(upstream: Upstream, fault: str, applied: int) -> None:
    async with proxy(upstream.address, Plan(1, {f"Call:{fault}": 1.0}, silence=30)) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(address, timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(upstream.requests) == applied


async def test_a_slow_call_arrives(upstream: Upstream) -> None:
    async with proxy(upstream.address, Plan(1, {"Call:slow": 1.0}, delay=0.1)) as address:
        assert await call(address) == b"x"


async def test_an_unreachable_service_comes_back(upstream: Upstream) -> None:
    plan = Plan(1, {})
    async with proxy(upstream.address, plan) as address:
        plan.unreachable = True
        with pytest.raises(grpc.aio.AioRpcError):
            await call(address)
        plan.unreachable = False
        assert await call(address) == b"x"
    assert upstream.requests == [b"x"]


def test_a_seed_gives_a_method_the_same_faults_whatever_the_others_do() -> None:
    rates = {f"{method}:{fault}": 0.1 for method in ("Commit", "Pull") for fault in FAULTS}
    alone, mixed, other = Plan(7, rates), Plan(7, rates), Plan(8, rates)
    first = [alone.fault("Commit") for _ in range(200)]
    second = []
    for _ in range(200):
        mixed.fault("Pull")
        second.append(mixed.fault("Commit"))
    assert first == second
    assert first != [other.fault("Commit") for _ in range(200)]
    assert set(first) == {None, *FAULTS}


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="Commit:explode"):
        Plan(1, {"Commit:explode": 0.5})


@pytest.mark.parametrize("flavour", ["firestore-mode", "firestore"])
async def test_a_commit_whose_reply_is_lost_was_applied(emulators: Hosts, flavour: Flavour) -> None:
    hosts = emulators(flavour)
    plan = Plan(1, {"Commit:reply-lost": 1.0, "Publish:failed-after": 0.5}, silence=0.2)
    insert = Insert(Entity(key=(("Thing", "a"),), properties={"n": 1}))
    async with (
        proxy(hosts["DATASTORE_EMULATOR_HOST"], plan) as datastore,
        proxy(hosts["PUBSUB_EMULATOR_HOST"], plan) as pubsub,
    ):
        through = {"DATASTORE_EMULATOR_HOST": datastore, "PUBSUB_EMULATOR_HOST": pubsub}
        backend = await gcp.open(config.load({**through, "TALLY_PROJECT": f"chaos-{uuid.uuid4().hex[:12]}"}))
        await backend.prepare()
        with pytest.raises(Unavailable):
            await backend.store.commit([insert])
        plan.quiet = True
        with pytest.raises(Refused):
            await backend.store.commit([insert])
        plan.quiet = False
        for _ in range(5):
            await backend.publisher.publish("votes", [Outgoing(b"vote", {})])
        plan.quiet = True
        received: set[str] = set()
        async with asyncio.timeout(20):
            while len(received) < 5 + plan.fired["Publish:failed-after"]:
                received |= {message.message_id for message in await backend.puller("votes").pull(100)}
        await backend.close()
    assert plan.fired["Publish:failed-after"] > 0
