"""A gRPC proxy that misbehaves by a seeded plan, to stand between the product's processes and an emulator.

    plan = Plan(seed, {"Commit:reply-lost": 0.05, "Pull:slow": 0.1})
    async with proxy(emulator_host, plan) as address:
        ...  # processes that take `address` for the emulator's host

It knows unary calls and bytes only, so it serves Pub/Sub and Datastore alike. `plan.fired` counts what it did.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NoReturn

import grpc
import grpc.aio

FAULTS = {
    "slow": "sent after a delay",
    "refused": "not sent, UNAVAILABLE at once",
    "request-lost": "not sent, and no answer but a broken connection in the end",
    "failed-after": "sent and applied, then UNAVAILABLE at once",
    "reply-lost": "sent and applied, and no answer but a broken connection in the end",
}
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Plan:
    """Decides what becomes of each call. `rates`: `Method:fault` → probability a call.

    Each method draws from a random of its own, so what befalls its n-th call does not depend on the other methods.
    `delay`: seconds of the longest `slow`. `silence`: seconds after which a lost call's connection breaks, if the
    client's deadline has not come before. `quiet` lets no more faults happen; `unreachable` refuses every call.
    """

    def __init__(self, seed: int, rates: Mapping[str, float], *, delay: float = 2.0, silence: float = 2.0) -> None:
        for name in rates:
            if name.partition(":")[2] not in FAULTS:
                raise ValueError(f"fault {name!r}: want Method:fault with one of {sorted(FAULTS)}")
        self.fired: Counter[str] = Counter()
        self.quiet = False
        self.unreachable = False
        self.silence = silence
        self._seed = seed
        self._rates = rates
        self._delay = delay
        self._randoms: dict[str, Random] = {}

    def fault(self, method: str) -> str | None:
        """Return the fault of the next call of a method, or None, and count it."""
        if self.unreachable:
            self.fired[f"{method}:unreachable"] += 1
            return "refused"
        if self.quiet:
            return None
        dice = self._random(method).random()
        for fault in FAULTS:
            name = f"{method}:{fault}"
            dice -= self._rates.get(name, 0.0)
            if dice < 0:
                self.fired[name] += 1
                return fault
        return None

    def delay(self, method: str) -> float:
        return self._random(method).random() * self._delay

    def _random(self, method: str) -> Random:
        if method not in self._randoms:
            self._randoms[method] = Random(f"{self._seed}:{method}")
        return self._randoms[method]


@asynccontextmanager
async def proxy(upstream: str, plan: Plan) -> AsyncIterator[str]:
    """Serve on a free port until the block is left; yield its host:port."""
    async with grpc.aio.insecure_channel(upstream, options=[*_UNLIMITED, ("grpc.enable_http_proxy", 0)]) as channel:
        server = grpc.aio.server(options=_UNLIMITED)
        handler = _Handler(channel, plan)
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(0)
            await handler.settle()


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # takes type arguments in its stubs, but none when it runs
    def __init__(self, channel: grpc.aio.Channel, plan: Plan) -> None:
        self._channel = channel
        self._plan = plan
        self._sent: set[asyncio.Task[bytes]] = set()

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        call: Callable[..., Any] = self._channel.unary_unary(
            path, request_serializer=bytes, response_deserializer=bytes
        )

        async def handle(request: bytes, context: Any) -> bytes:
            return await self._handle(path.rpartition("/")[2], call, request, context)

        return grpc.unary_unary_rpc_method_handler(handle)

    async def settle(self) -> None:
        """Wait for what was sent and whose caller is not waited for."""
        await asyncio.gather(*self._sent, return_exceptions=True)

    async def _handle(self, method: str, call: Callable[..., Any], request: bytes, context: Any) -> bytes:
        fault = self._plan.fault(method)
        if fault == "refused":
            await _break(context)
        if fault == "request-lost":
            await self._fall_silent(context)
        if fault == "slow":
            await asyncio.sleep(self._plan.delay(method))
        # A client that gives up cancels its call here; that of a lost reply goes on to its end all the same.
        sent = self._send(call, request, context)
        try:
            reply = await (sent if fault in (None, "slow") else asyncio.shield(sent))
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
        if fault == "failed-after":
            await _break(context)
        if fault == "reply-lost":
            await self._fall_silent(context)
        return reply

    def _send(self, call: Callable[..., Any], request: bytes, context: Any) -> asyncio.Task[bytes]:
        metadata = tuple(_forwarded(context.invocation_metadata()))

        async def send() -> bytes:
            answer: bytes = await call(request, metadata=metadata, timeout=context.time_remaining())
            return answer

        task = asyncio.create_task(send())
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)
        return task

    async def _fall_silent(self, context: Any) -> NoReturn:
        await asyncio.sleep(self._plan.silence)
        await _break(context)


async def _break(context: Any) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "by the plan")
    raise AssertionError("abort does not return")


def _forwarded(metadata: Iterable[tuple[str, str | bytes]]) -> Iterable[tuple[str, str | bytes]]:
    return ((key, value) for key, value in metadata if not key.startswith("grpc-") and key != "user-agent")
