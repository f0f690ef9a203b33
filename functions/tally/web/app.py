"""The web application: finds the route of a request, runs its handler and turns what it raises into an answer.

Routes match the raw path, byte by byte: `%2F` is no slash, and what stands for a parameter is handed on undecoded.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from tally.errors import TallyError
from tally.logs import event
from tally.web import body
from tally.web.answer import Answer, from_error, problem

Handler = Callable[..., Awaitable[Answer]]
_KNOWN_PATHS = 1_000


class Request(NamedTuple):
    """An ASGI request: the least that a handler needs."""

    scope: Scope
    receive: Receive

    async def read(self, most: int) -> bytes:
        """Return the body, said to be JSON and at most so many bytes; raise as `body.read`."""
        return await body.read(self.scope["headers"], self.receive, most)


class Route(NamedTuple):
    """`path` is like "/v1/polls/{poll}/votes": the handler gets the request and what stands in the braces, by name."""

    method: str
    path: str
    handler: Handler


class _Place:
    """All routes of one path."""

    def __init__(self, path: str) -> None:
        self.segments = [segment.encode() for segment in path.split("/")]
        self.names = {
            number: segment[1:-1] for number, segment in enumerate(path.split("/")) if segment.startswith("{")
        }
        self.fixed = [(number, segment) for number, segment in enumerate(self.segments) if number not in self.names]
        self.handlers: dict[str, Handler] = {}

    def match(self, segments: list[bytes]) -> dict[str, str] | None:
        if len(segments) != len(self.segments):
            return None
        for number, segment in self.fixed:
            if segments[number] != segment:
                return None
        try:
            return {name: segments[number].decode("ascii") for number, name in self.names.items()}
        except UnicodeDecodeError:
            return None


class App:
    """An ASGI application; `answer` is the same as a function of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        places: dict[str, _Place] = {}
        for route in routes:
            place = places.setdefault(route.path, _Place(route.path))
            place.handlers[route.method] = route.handler
        self._places = list(places.values())
        self._found: dict[bytes, tuple[_Place, dict[str, str]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = await self.answer(Request(scope, receive))
            await answer(scope, receive, send)

    async def answer(self, request: Request) -> Answer:
        """Answer a request; never raises for what a caller can do."""
        found = self._found.get(request.scope["raw_path"]) or self._find(request.scope["raw_path"])
        if found is None:
            return problem(404, "no-such-path", "nothing is at this path")
        place, parameters = found
        handler = place.handlers.get(request.scope["method"])
        if handler is None:
            return await self._other_method(request, place, parameters)
        try:
            return await handler(request, **parameters)
        except TallyError as error:
            answer = from_error(error)
            if answer.status == 500:
                event("request-failed", error=error)
            return answer
        except Exception as error:
            event("request-failed", error=error)
            return problem(500, "internal", "the server is at fault; its log says more")

    def _find(self, path: bytes) -> tuple[_Place, dict[str, str]] | None:
        segments = path.split(b"/")
        for place in self._places:
            parameters = place.match(segments)
            if parameters is not None:
                if len(self._found) >= _KNOWN_PATHS:
                    self._found.clear()
                self._found[path] = place, parameters
                return place, parameters
        return None

    async def _other_method(self, request: Request, place: _Place, parameters: dict[str, str]) -> Answer:
        method = request.scope["method"]
        allowed = {*place.handlers, "OPTIONS"} | ({"HEAD"} if "GET" in place.handlers else set())
        allow = ((b"allow", ", ".join(sorted(allowed)).encode()),)
        if method == "OPTIONS":
            return Answer(204, headers=allow)
        if method == "HEAD" and "GET" in place.handlers:
            return await self._headless(request)
        return problem(405, "method-not-allowed", f"{method} does not go with this path", allow)

    async def _headless(self, request: Request) -> Answer:
        """Answer as GET; the server leaves the body out."""
        return await self.answer(Request({**request.scope, "method": "GET"}, request.receive))
