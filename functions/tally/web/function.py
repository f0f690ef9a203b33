"""An App as a function of the Functions Framework: opened at the first request, for there is no hook before it.

The framework serves a function through a stack of middleware and routes of its own. With its first answer a Function
takes that stack's place: later requests come straight from the server, in half the time, with every method and path.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from starlette import requests
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from tally import collector
from tally.errors import TallyError
from tally.logs import event
from tally.web.answer import Answer, from_error
from tally.web.app import App, Request


class Function:
    """One app for each event loop, made by `compose`; a failure to make it is tried again by the next request."""

    def __init__(self, compose: Callable[[], Awaitable[App]]) -> None:
        self._compose = compose
        self._apps: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[App]] = WeakKeyDictionary()

    async def __call__(self, request: requests.Request) -> Answer:
        if isinstance(request.scope.get("app"), Starlette):
            request.app.middleware_stack = self.serve
        return await self._answer(Request(request.scope, request.receive))

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Be an ASGI application."""
        if scope["type"] == "http":
            answer = await self._answer(Request(scope, receive))
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Answer:
        loop = asyncio.get_running_loop()
        opening = self._apps.get(loop)
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._apps[loop] = loop.create_task(self._open())
        try:
            app = opening.result() if opening.done() else await asyncio.shield(opening)
        except TallyError as error:
            event("function-not-open", level=logging.ERROR, error=error)
            return from_error(error)
        return await app.answer(request)

    async def _open(self) -> App:
        app = await self._compose()
        collector.spare()
        return app
