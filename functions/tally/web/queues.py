"""The routes of pull queues, for workers in any language; for the administrator's function only.

A task is written as its envelope (tasks/envelope.py); a lease is presented as its task's name and its token.
"""

from dataclasses import asdict
from typing import Any

import msgspec

from tally import limits
from tally.clock import to_datetime
from tally.errors import InvalidInput, NotFound
from tally.tasks import envelope
from tally.tasks.lease import Lease
from tally.tasks.leasing import OLDEST
from tally.tasks.outcome import Outcome
from tally.tasks.queue import PullQueue
from tally.tasks.queues import PullQueues
from tally.tasks.stats import QueueStats
from tally.tasks.task import Task, seconds
from tally.web import answer, body, page
from tally.web.answer import Answer
from tally.web.app import Request, Route


class _LeaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_tasks: int = 1
    seconds: float = 60
    tag: str | None = None
    oldest_tag: bool = False
    wait: float = 0


class _Held(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    token: str


class _ExtendBody(_Held, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seconds: float


class _ReleaseBody(_Held, frozen=True, kw_only=True, forbid_unknown_fields=True):
    delay: float | None = None
    error: str | None = None
    counts: bool = True


class _CompleteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    leases: list[_Held]


_tasks = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_lease = msgspec.json.Decoder(_LeaseBody)
_extend = msgspec.json.Decoder(_ExtendBody)
_release = msgspec.json.Decoder(_ReleaseBody)
_complete = msgspec.json.Decoder(_CompleteBody)


def routes(queues: PullQueues) -> list[Route]:
    return [*_queue_routes(queues), *_lease_routes(queues)]


def _queue_routes(queues: PullQueues) -> list[Route]:
    async def add(request: Request, queue: str) -> Answer:
        target = _queue(queues, queue)
        data = await request.read(limits.TASK_BODY_BYTES)
        sent = body.decode(_tasks, data)
        if "tasks" not in sent:
            outcome = await target.add(envelope.decode(data))
            return answer.json(201 if outcome.status == "added" else 200, _outcome(outcome))
        if len(sent) > 1:
            raise InvalidInput("beside tasks there may be nothing else", code="bad-json")
        outcomes = await _add_many(target, body.decode(_list, bytes(sent["tasks"])))
        good = all(outcome.status not in ("invalid", "unknown") for outcome in outcomes)
        return answer.json(200 if good else 207, {"outcomes": [_outcome(outcome) for outcome in outcomes]})

    async def stats(request: Request, queue: str) -> Answer:
        target = await queues.existing(_queue(queues, queue).name)
        return answer.json(200, _numbers(await target.stats()))

    async def list_(request: Request) -> Answer:
        limit, cursor = page.wanted(request.scope["query_string"], limits.QUEUES_PER_PAGE)
        names = await queues.page(limit, cursor)
        found = [{"name": name, **_numbers(await queues(name).stats())} for name in names.names]
        return answer.json(200, {"queues": found, "cursor": page.following(names.cursor)})

    return [
        Route("GET", "/v1/queues", list_),
        Route("POST", "/v1/queues/{queue}/tasks", add),
        Route("GET", "/v1/queues/{queue}/stats", stats),
    ]


def _lease_routes(queues: PullQueues) -> list[Route]:
    async def lease(request: Request, queue: str) -> Answer:
        sent = body.decode(_lease, await request.read(limits.TASK_BODY_BYTES))
        if sent.oldest_tag and sent.tag is not None:
            raise InvalidInput(f"tag {sent.tag!r} and oldest_tag: give one or the other")
        seconds("wait", sent.wait, at_most=limits.LEASE_WAIT_HTTP_SECONDS)
        tag = OLDEST if sent.oldest_tag else sent.tag
        leases = await _queue(queues, queue).lease(sent.max_tasks, seconds=sent.seconds, tag=tag, wait=sent.wait)
        return answer.json(200, {"leases": [_view(each) for each in leases]})

    async def extend(request: Request, queue: str) -> Answer:
        sent = body.decode(_extend, await request.read(limits.TASK_BODY_BYTES))
        target = _queue(queues, queue)
        held = await target.extend(await target.held(sent.name, sent.token), sent.seconds)
        return answer.json(200, {"name": held.name, "expires_at": to_datetime(held.expires_at)})

    async def release(request: Request, queue: str) -> Answer:
        sent = body.decode(_release, await request.read(limits.TASK_BODY_BYTES))
        target = _queue(queues, queue)
        held = await target.held(sent.name, sent.token)
        status = await target.release(held, delay=sent.delay, error=sent.error, counts=sent.counts)
        return answer.json(200, {"name": sent.name, "status": status})

    async def complete(request: Request, queue: str) -> Answer:
        sent = body.decode(_complete, await request.read(limits.TASK_BODY_BYTES)).leases
        _few("leases", len(sent))
        target = _queue(queues, queue)
        held = await target.held_many([(each.name, each.token) for each in sent])
        settled = iter(await target.complete_many([each for each in held if each is not None]))
        outcomes = [
            {"name": each.name, "status": "lost" if lease is None else next(settled)}
            for each, lease in zip(sent, held, strict=True)
        ]
        good = all(each["status"] == "done" for each in outcomes)
        return answer.json(200 if good else 207, {"outcomes": outcomes})

    return [
        Route("POST", "/v1/queues/{queue}/lease", lease),
        Route("POST", "/v1/queues/{queue}/extend", extend),
        Route("POST", "/v1/queues/{queue}/release", release),
        Route("POST", "/v1/queues/{queue}/complete", complete),
    ]


def _numbers(counted: QueueStats) -> dict[str, object]:
    oldest = None if counted.oldest_eta is None else to_datetime(counted.oldest_eta)
    return {**asdict(counted), "oldest_eta": oldest}


async def _add_many(queue: PullQueue, sent: list[msgspec.Raw]) -> list[Outcome]:
    """Add what decodes; one outcome each, in order."""
    _few("tasks", len(sent))
    decoded: list[Task | Outcome] = []
    for each in sent:
        try:
            decoded.append(envelope.decode(bytes(each)))
        except InvalidInput as error:
            decoded.append(Outcome(status="invalid", error=error.message))
    added = iter(await queue.add_many(each for each in decoded if isinstance(each, Task)))
    return [each if isinstance(each, Outcome) else next(added) for each in decoded]


def _queue(queues: PullQueues, name: str) -> PullQueue:
    try:
        return queues(name)
    except InvalidInput as error:
        raise NotFound(error.message, code="queue-not-found") from error


def _few(what: str, count: int) -> None:
    if not 1 <= count <= limits.TASKS_PER_REQUEST:
        raise InvalidInput(f"{count} {what}: want 1 to {limits.TASKS_PER_REQUEST}", code="bad-size")


def _outcome(outcome: Outcome) -> dict[str, str]:
    fields = {"name": outcome.name, "status": outcome.status, "error": outcome.error}
    return {name: value for name, value in fields.items() if value is not None}


def _view(lease: Lease) -> dict[str, Any]:
    return {
        "name": lease.name,
        "token": lease.token,
        "expires_at": to_datetime(lease.expires_at),
        "attempt": lease.attempt,
        "last_error": lease.last_error,
        "task": envelope.of(lease.task),
    }
