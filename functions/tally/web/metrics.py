"""`GET /metrics`: Prometheus' text. On the ports of workers and of `tally serve`, on none that the world can reach."""

from collections.abc import Callable

from tally.web.answer import Answer
from tally.web.app import Request, Route


def routes(text: Callable[[], bytes], content_type: str) -> list[Route]:
    async def metrics(request: Request) -> Answer:
        return Answer(200, text(), ((b"content-type", content_type.encode()),))

    return [Route("GET", "/metrics", metrics)]
