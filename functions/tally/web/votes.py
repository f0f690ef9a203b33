"""`POST /v1/polls/{poll}/votes`: one vote, or a list with one outcome a vote."""

from collections.abc import Sequence

import msgspec

from tally import limits
from tally.errors import InvalidInput, TallyError, TooLarge
from tally.votes.intake import Cast, Intake, Receipt
from tally.web import answer, body
from tally.web.answer import Answer
from tally.web.app import Request, Route


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One vote, or `votes`."""

    option: str | None = None
    voter: str | None = None
    id: str | None = None
    votes: list[Cast] | None = None


_decoder = msgspec.json.Decoder(_Body)


def routes(intake: Intake) -> list[Route]:
    async def post(request: Request, poll: str) -> Answer:
        content = await request.read(limits.BODY_BYTES)
        sent = body.decode(_decoder, content, _names)
        key = _key(request.scope["headers"])
        if sent.votes is not None:
            return _many(await intake.votes(poll, _list(sent), key))
        if len(content) > limits.VOTE_BODY_BYTES:
            raise TooLarge(f"the body is over {limits.VOTE_BODY_BYTES} bytes", code="body-too-large")
        if sent.option is None:
            raise InvalidInput("option is missing", code="bad-json")
        receipt = await intake.vote(poll, Cast(sent.option, sent.voter, sent.id), key)
        return answer.raw_json(202, _one(receipt))

    return [Route("POST", "/v1/polls/{poll}/votes", post)]


def _names(sent: _Body) -> int:
    names = (sent.option is not None) + (sent.voter is not None) + (sent.id is not None)
    if sent.votes is None:
        return names
    return names + 1 + sum(1 + (cast.voter is not None) + (cast.id is not None) for cast in sent.votes)


def _list(sent: _Body) -> list[Cast]:
    if sent.option is not None or sent.voter is not None or sent.id is not None:
        raise InvalidInput("votes stands alone: each vote in it has its own option", code="bad-json")
    if not sent.votes or len(sent.votes) > limits.VOTES_PER_REQUEST:
        raise InvalidInput(
            f"votes has {len(sent.votes or ())} votes: want 1 to {limits.VOTES_PER_REQUEST}", code="bad-length"
        )
    return sent.votes


def _key(headers: body.RawHeaders) -> str | None:
    key = None
    for name, value in headers:
        if name == b"idempotency-key":
            if key is not None:
                raise InvalidInput("Idempotency-Key is there twice", code="bad-header")
            key = value
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        raise InvalidInput("Idempotency-Key is not UTF-8", code="bad-header") from None


def _one(receipt: Receipt) -> bytes:
    if receipt.retry_safe:
        return b'{"ballot":"%b"}' % receipt.ballot.hex().encode()
    return b'{"ballot":"%b","retry_safe":false}' % receipt.ballot.hex().encode()


def _many(outcomes: Sequence[Receipt | TallyError]) -> Answer:
    refused = any(isinstance(outcome, TallyError) for outcome in outcomes)
    return answer.json(207 if refused else 202, {"votes": [_outcome(outcome) for outcome in outcomes]})


def _outcome(outcome: Receipt | TallyError) -> dict[str, object]:
    if isinstance(outcome, TallyError):
        return {"status": answer.status_of(outcome), "code": outcome.code, "detail": outcome.message}
    accepted: dict[str, object] = {"status": 202, "ballot": outcome.ballot.hex()}
    return accepted if outcome.retry_safe else {**accepted, "retry_safe": False}
