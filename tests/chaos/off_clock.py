"""Function `public` on a machine whose clock is off by CLOCK_OFF_SECONDS, as a source of the Functions Framework."""

import os

from functions_framework import aio
from starlette.requests import Request

from tally import bootstrap, config
from tally.clock import SECOND, SystemClock
from tally.web.answer import Answer
from tally.web.app import App
from tally.web.function import Function


class OffClock:
    def now(self) -> int:
        return SystemClock().now() + int(os.environ["CLOCK_OFF_SECONDS"]) * SECOND


async def _app() -> App:
    settings = config.load(os.environ)
    backend = await bootstrap.open_backend(settings)
    return bootstrap.public_site(settings, backend, bootstrap.World(clock=OffClock())).app


_function = Function(_app)


@aio.http
async def public(request: Request) -> Answer:
    return await _function(request)
