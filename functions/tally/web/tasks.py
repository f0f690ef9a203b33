"""`POST /v1/run/{queue}`: what Cloud Tasks pushes. Its sender repeats whatever is not answered with 2xx.

An outage of ours is 500, never 429 or 503: those would make Cloud Tasks slow the whole queue down.
"""

from collections.abc import Mapping

from tally import limits
from tally.errors import BackendError
from tally.logs import event
from tally.tasks.receiver import PushReceiver
from tally.web import answer
from tally.web.answer import Answer
from tally.web.app import Request, Route


def routes(receiver: PushReceiver) -> list[Route]:
    async def post(request: Request, queue: str) -> Answer:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
        payload = await request.read(limits.BODY_BYTES)
        if await received(receiver, queue, headers, payload) == 500:
            return answer.problem(500, "backend", "the store or the queue does not answer; send the task again")
        return Answer(200)

    return [Route("POST", "/v1/run/{queue}", post)]


async def received(receiver: PushReceiver, queue: str, headers: Mapping[str, str], payload: bytes) -> int:
    """Return 200, or 500 when the task shall be sent again. Raises Forbidden, InvalidInput."""
    try:
        await receiver.receive(queue, headers, payload)
    except BackendError as error:
        event("run-task-failed", queue=queue, error=error)
        return 500
    return 200
