"""What the emulator answers beside the API: readiness, reset, clock, fault plan, status, token documents."""

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from emulator.cloud_tasks.api import CloudTasks
from emulator.cloud_tasks.clock import ManualClock
from emulator.cloud_tasks.dispatcher import Dispatcher
from emulator.cloud_tasks.faults import Faults, Plan
from emulator.cloud_tasks.names import queue_id
from emulator.cloud_tasks.queues import Queues
from emulator.cloud_tasks.rest import BODY_BYTES, PREFIX, Rest
from emulator.cloud_tasks.tokens import CERTS, DISCOVERY, JWKS, Tokens
from tally.clock import SECOND, Clock, to_datetime
from tally.tasks.entry import DAY

LONGEST_STEP = 400 * DAY


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /clock`: move by `seconds`, or to the instant `to` (µs since 1970)."""

    seconds: float | None = None
    to: int | None = None


class Control:
    def __init__(
        self, *, api: CloudTasks, queues: Queues, dispatcher: Dispatcher, faults: Faults, tokens: Tokens, clock: Clock
    ) -> None:
        self._api = api
        self._queues = queues
        self._dispatcher = dispatcher
        self._faults = faults
        self._tokens = tokens
        self._clock = clock
        self._stepping = asyncio.Lock()

    def application(self) -> web.Application:
        """Return everything that is served over HTTP."""
        app = web.Application(client_max_size=BODY_BYTES)
        app.router.add_get("/", self._ready)
        app.router.add_post("/reset", self._reset)
        app.router.add_get("/status", self._status)
        app.router.add_get("/clock", self._read_clock)
        app.router.add_post("/clock", self._step_clock)
        app.router.add_get("/faults", self._read_faults)
        app.router.add_post("/faults", self._set_faults)
        app.router.add_delete("/faults", self._clear_faults)
        app.router.add_get(DISCOVERY, self._discovery)
        app.router.add_get(CERTS, self._certificates)
        app.router.add_get(JWKS, self._jwks)
        app.router.add_route("*", PREFIX + "{path:.*}", Rest(self._api).handle)
        return app

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(text="Ok\n")

    async def _reset(self, _: web.Request) -> web.Response:
        self._api.reset()
        self._faults.set(Plan())
        return web.Response(text="Resetting...\n")

    async def _status(self, _: web.Request) -> web.Response:
        return _json(status(self._queues, self._dispatcher))

    async def _read_clock(self, _: web.Request) -> web.Response:
        return _json(self._now())

    async def _step_clock(self, request: web.Request) -> web.Response:
        if not isinstance(self._clock, ManualClock):
            return _refuse("the clock is the machine's: start with --clock manual")
        try:
            step = msgspec.json.decode(await request.read(), type=Step)
        except msgspec.DecodeError as error:
            return _refuse(f'want {{"seconds": number}} or {{"to": microseconds}}: {error}')
        if (step.seconds is None) == (step.to is None):
            return _refuse('want one of "seconds" and "to"')
        async with self._stepping:
            now = self._clock.now()
            if step.seconds is not None and abs(step.seconds) * SECOND > LONGEST_STEP:
                return _refuse(f"{step.seconds} s is too far: at most {LONGEST_STEP // SECOND} s at once")
            to = step.to if step.to is not None else now + round((step.seconds or 0) * SECOND)
            if not now <= to <= now + LONGEST_STEP:
                return _refuse(f"the clock is at {now} µs and cannot go to {to} µs: ahead, at most 400 days at once")
            before = self._dispatcher.sent
            await self._dispatcher.advance(self._clock, to)
            return _json(self._now() | {"dispatched": self._dispatcher.sent - before})

    async def _read_faults(self, _: web.Request) -> web.Response:
        return _json({"rules": self._faults.report(), "seed": self._faults.plan.seed})

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            self._faults.set(msgspec.json.decode(await request.read(), type=Plan))
        except msgspec.DecodeError as error:
            return _refuse(f"no fault plan: {error}")
        return await self._read_faults(request)

    async def _clear_faults(self, request: web.Request) -> web.Response:
        self._faults.set(Plan())
        return await self._read_faults(request)

    async def _discovery(self, request: web.Request) -> web.Response:
        return _json(self._tokens.discovery(f"{request.scheme}://{request.host}"))

    async def _certificates(self, _: web.Request) -> web.Response:
        return _json(self._tokens.certificates())

    async def _jwks(self, _: web.Request) -> web.Response:
        return _json(self._tokens.jwks())

    def _now(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"now": now, "time": to_datetime(now).isoformat(), "manual": isinstance(self._clock, ManualClock)}


def status(queues: Queues, dispatcher: Dispatcher) -> dict[str, Any]:
    """Return what the view shows: every queue with its statistics, and the last attempts."""
    now = queues.clock.now()
    rows = []
    for queue in queues.all():
        stats = queue.schedule.stats(now)
        rows.append(
            {
                "queue": queue.name,
                "id": queue_id(queue.name),
                "state": queue.message.DESCRIPTOR.fields_by_name["state"]
                .enum_type.values_by_number[queue.message.state]
                .name,
                "tasks": stats.tasks,
                "in_flight": stats.in_flight,
                "oldest_eta": stats.oldest_eta,
                "executed_last_minute": stats.executed_last_minute,
                "enforced_rate": stats.enforced_rate,
            }
        )
    last = [msgspec.to_builtins(done) for done in reversed(dispatcher.last)]
    return {"now": now, "dispatched": dispatcher.sent, "queues": rows, "last": last}


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _refuse(message: str) -> web.Response:
    return web.json_response({"error": message}, status=HTTPStatus.BAD_REQUEST)
