"""`GET /v1/polls/{poll}/results`, for many who ask often: a shared cache may keep it for a second."""

from hashlib import blake2b

import msgspec

from tally.clock import Clock, to_datetime
from tally.votes.results import Results, ResultsReader
from tally.web import answer
from tally.web.answer import Answer
from tally.web.app import Request, Route
from tally.web.polls import deleted

_CACHE = (b"cache-control", b"public, max-age=1")


def routes(reader: ResultsReader, clock: Clock) -> list[Route]:
    async def get(request: Request, poll: str) -> Answer:
        results = await reader.read(poll)
        status = results.poll.status(clock.now())
        if status == "deleted":
            return deleted(poll)
        shown = _view(results, status)
        tag = b'"%b"' % blake2b(msgspec.json.encode(shown), digest_size=12).hexdigest().encode()
        headers = ((b"etag", tag), _CACHE)
        if not _known_tags(request).isdisjoint((tag, b"*")):
            return Answer(304, headers=headers)
        return answer.json(200, {**shown, "as_of": to_datetime(results.as_of)}, headers)

    return [Route("GET", "/v1/polls/{poll}/results", get)]


def _view(results: Results, status: str) -> dict[str, object]:
    counts = results.counts
    return {
        "poll": results.poll.id,
        "status": status,
        "total": None if counts is None else sum(counts),
        "counts": None
        if counts is None
        else {option.id: count for option, count in zip(results.poll.options, counts, strict=True)},
        "final": False,
    }


def _known_tags(request: Request) -> set[bytes]:
    values = [value for name, value in request.scope["headers"] if name == b"if-none-match"]
    return {tag.strip().removeprefix(b"W/") for value in values for tag in value.split(b",")}
