"""`/live` answers while the event loop turns; `/health` is 503 while no vote has got through for a while."""

from tally.votes.microbatch import MicroBatcher
from tally.votes.worker import Worker
from tally.web import answer
from tally.web.answer import Answer
from tally.web.app import Request, Route

UNHEALTHY_SECONDS = 30.0


def worker_routes(worker: Worker) -> list[Route]:
    """Return the routes of a worker's port: only `/live` may restart it, alerts read `/health`."""

    async def live(request: Request) -> Answer:
        return answer.json(200, {"live": True})

    async def health(request: Request) -> Answer:
        state = worker.health()
        return answer.json(200 if state.ok else 503, {"healthy": state.ok, **state.body})

    return [Route("GET", "/live", live), Route("GET", "/health", health)]


def routes(batcher: MicroBatcher | None) -> list[Route]:
    """Return the routes; a server that takes no votes has no batcher and is healthy while it lives."""

    async def live(request: Request) -> Answer:
        return answer.json(200, {"live": True})

    async def health(request: Request) -> Answer:
        failing = 0.0 if batcher is None else batcher.failing_seconds
        healthy = failing < UNHEALTHY_SECONDS
        return answer.json(200 if healthy else 503, {"healthy": healthy, "publishing_fails_for_seconds": failing})

    return [Route("GET", "/live", live), Route("GET", "/health", health)]
