"""PushQueue: tasks that are sent to a URL at their time, on the Dispatcher port (Cloud Tasks, or embedded's own).

    queue = PushQueue("mail", dispatcher, target=Target(url="https://run-…", audience="https://run-…"), clock=…, …)
    await queue.add(Task.json({"to": 7}, delay=60), url="https://shop.example/mail")

Calls of task functions go to the function `run_task`, any other task to its own URL. The id of a task in the service is
a hash: even names spread, and a name whose epoch differs is another task. A time beyond what the service takes is
reached in hops; the runner sends each on (see run.py), so nobody else knows of them. A request to a URL that is too far
ahead or too large for the service goes as a call, too (request.py).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from tally import limits
from tally.clock import SECOND, Clock
from tally.errors import BackendError, InvalidInput, Refused, Unavailable
from tally.ports import Dispatcher, DispatchStats, HttpTask
from tally.retry import UNLIMITED, RetryPolicy, full_jitter
from tally.tasks.call import Delivery, digest
from tally.tasks.outcome import Outcome
from tally.tasks.task import FORM, JSON, Task, check_queue, seconds

HOP = 29 * 86_400 * SECOND  # Cloud Tasks takes an ETA up to 30 days ahead
DELIVERY_HEADER = "tally-delivery"
Method = Literal["POST", "GET", "PUT", "HEAD", "DELETE", "PATCH"]
_TRIES = 4
_MARGIN = 5.0  # seconds that an attempt has beyond the function's timeout, to write down what came of it
_AT_A_TIME = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where `run_task` is served, and the audience of the tokens sent to it: its URL without path and query."""

    url: str
    audience: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise InvalidInput(f"url {self.url!r}: want http(s)://host without query or fragment")

    def of(self, queue: str) -> str:
        return f"{self.url.rstrip('/')}/v1/run/{quote(queue, safe='')}"


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What travels beside the payload of a delivery, as the header `Tally-Delivery`."""

    id: str
    epoch: int = 0
    hop: int = 0
    due: int = 0
    timeout: float = 600.0
    headers: dict[str, str] = {}


class Beyond(Protocol):
    """Takes requests that the service does not."""

    async def add(self, queue: "PushQueue", task: Task, request: HttpTask) -> bool: ...

    async def cancel(self, queue: str, name: str) -> bool: ...

    async def run_now(self, queue: str, name: str) -> bool: ...


class PushQueue:
    """One push queue. `beyond` None: a request is refused that the service would not take."""

    def __init__(
        self,
        name: str,
        dispatcher: Dispatcher,
        *,
        target: Target,
        clock: Clock,
        random: Random,
        beyond: Beyond | None = None,
    ) -> None:
        self.name = check_queue(name)
        self._dispatcher = dispatcher
        self._target = target
        self._clock = clock
        self._random = random
        self._beyond = beyond

    async def carry(self, delivery: Delivery) -> None:
        """Send a call to `run_task`, at its time or, if that is too far, on its way there. See `Carrier`."""
        sent = Sent(
            id=delivery.id,
            epoch=delivery.epoch,
            hop=delivery.hop or 0,
            due=delivery.due,
            timeout=delivery.timeout,
            headers=dict(delivery.headers),
        )
        task = HttpTask(
            id=delivery.name,
            url=self._target.of(self.name),
            headers={"content-type": JSON, DELIVERY_HEADER: msgspec.json.encode(sent).decode()},
            body=delivery.payload,
            at=min(delivery.due, self._clock.now() + HOP),
            deadline=_deadline(delivery.timeout),
            audience=self._target.audience,
        )
        await self._create(task)

    async def add(self, task: Task, *, url: str, method: Method = "POST", audience: str = "") -> Outcome:
        """Add a request to a URL of yours: `added`, or `exists` by its name (which Cloud Tasks keeps for a while).

        Up to 8 MB and ten years ahead. Where the method has no body, a form goes into the URL. Raises InvalidInput,
        BackendError.
        """
        return _raised(await self._add(task, url, method, audience))

    async def add_many(
        self, tasks: Sequence[Task], *, url: str, method: Method = "POST", audience: str = ""
    ) -> list[Outcome]:
        """Add any number of tasks; return one outcome a task, in order. Each is added or not by itself."""
        # One request a task: the service's batch call (at most 100) is neither atomic nor done when it answers, and
        # after a lost reply only names tell what is in. Twenty at a time hide the round trips as well.
        turn = asyncio.Semaphore(_AT_A_TIME)

        async def one(task: Task) -> Outcome:
            async with turn:
                outcome = await self._add(task, url, method, audience)
            return outcome[0]

        return list(await asyncio.gather(*[one(task) for task in tasks]))

    async def delete(self, name: str) -> bool:
        """Delete a task that `add` was given by its name (or the name in its outcome); False when it is not there."""
        deleted = await self._dispatcher.delete(self.name, digest(self.name, name))
        cancelled = self._beyond is not None and await self._beyond.cancel(self.name, name)
        return deleted or cancelled

    async def run_now(self, name: str) -> bool:
        """Send a task that `add` was given now, also while the queue is paused; False when it is not there."""
        sent = await self._dispatcher.run(self.name, digest(self.name, name))
        return sent or (self._beyond is not None and await self._beyond.run_now(self.name, name))

    async def hurry(self, name: str) -> bool:
        """Send a call now; see `Carrier`."""
        return await self._dispatcher.run(self.name, name)

    async def purge(self) -> None:
        await self._dispatcher.purge(self.name)

    async def pause(self) -> None:
        await self._dispatcher.pause(self.name)

    async def resume(self) -> None:
        await self._dispatcher.resume(self.name)

    async def stats(self) -> DispatchStats:
        return await self._dispatcher.stats(self.name)

    async def _add(self, task: Task, url: str, method: Method, audience: str) -> tuple[Outcome, Exception | None]:
        name = task.identity(self.name) or f"{self._random.getrandbits(128):032x}"
        try:
            request = self._request(task, name, url, method, audience)
            if self._fits(task):
                created = await self._create(request)
            elif self._beyond is not None:
                created = await self._beyond.add(self, replace(task, name=name, unique=None), request)
            else:
                raise InvalidInput(
                    "a request over 900 kB, 29 days ahead, or that expires: here the service itself must take it"
                )
        except InvalidInput as error:
            return Outcome(status="invalid", name=name, error=error.message), error
        except BackendError as error:
            return Outcome(status="unknown", name=name, error=error.message), error
        return Outcome(status="added" if created else "exists", name=name), None

    def _request(self, task: Task, name: str, url: str, method: Method, audience: str) -> HttpTask:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise InvalidInput(f"url {url!r}: want http(s)://host/…")
        has_body = method in ("POST", "PUT", "PATCH")
        if not has_body and task.content_type == FORM and task.payload:
            url += ("&" if urlsplit(url).query else "?") + task.payload.decode("ascii", errors="replace")
        return HttpTask(
            id=digest(self.name, name),
            url=url,
            method=method,
            headers={"content-type": task.content_type, **task.headers},
            body=task.payload if has_body else b"",
            at=None if task.delay is None and task.eta is None else task.due(self._clock.now()),
            deadline=_deadline(600.0 if task.dispatch_deadline is None else seconds("", task.dispatch_deadline)),
            audience=audience,
            retry=None if task.retry is None else _of_the_service(task.retry),
        )

    def _fits(self, task: Task) -> bool:
        now = self._clock.now()
        near = task.due(now) <= now + HOP
        return len(task.payload) <= limits.PUSH_TASK_BYTES and near and task.expires is None

    @staticmethod
    async def hand_on(dispatcher: Dispatcher, queue: str, task: HttpTask) -> None:
        """Create a task whose id may have been used by an earlier try to do so."""
        try:
            await dispatcher.create(queue, task)
        except Refused as error:
            if error.status != "ALREADY_EXISTS":
                raise

    async def _create(self, task: HttpTask) -> bool:
        """Create a task; False when its id was there before. A lost reply is resolved by asking for the same id."""
        for attempt in range(1, _TRIES + 1):
            try:
                await self._dispatcher.create(self.name, task)
                return True
            except Refused as error:
                if error.status != "ALREADY_EXISTS":
                    raise
                return attempt > 1  # our own, made by the try whose reply was lost
            except Unavailable:
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(full_jitter(attempt, base=0.1, cap=2.0, random=self._random))
        raise AssertionError("the loop returns or raises")


def from_headers(queue: str, headers: Mapping[str, str], payload: bytes) -> Delivery:
    """Return the delivery that a request to `run_task` is. Raises InvalidInput.

    One without our header comes from another program's `create_task`: it goes by the name of its task.
    """
    text = headers.get(DELIVERY_HEADER)
    if text is None:
        name = headers.get("x-cloudtasks-taskname", "")
        if not name:
            raise InvalidInput(f"neither {DELIVERY_HEADER} nor a task name came with the request")
        return Delivery(queue=queue, id=digest(queue, name), payload=payload, hop=0)
    try:
        sent = msgspec.json.decode(text, type=Sent)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{DELIVERY_HEADER}: {error}") from error
    return Delivery(
        queue=queue,
        id=sent.id,
        payload=payload,
        epoch=sent.epoch,
        due=sent.due,
        hop=sent.hop,
        timeout=sent.timeout,
        headers=sent.headers,
    )


def _of_the_service(retry: RetryPolicy) -> RetryPolicy:
    """Return a policy of a request, which the service itself repeats; raise InvalidInput for what it cannot do."""
    limited_twice = retry.max_attempts != UNLIMITED and retry.max_retry_duration > 0
    if retry.growth != "doubling" or (limited_twice and retry.give_up == "either"):
        raise InvalidInput(
            "a push queue's own retries double, and end when both limits are used up: use a task function"
        )
    return retry


def _deadline(timeout: float) -> float:
    return min(max(timeout + _MARGIN, limits.DISPATCH_SECONDS_MIN), limits.DISPATCH_SECONDS)


def _raised(added: tuple[Outcome, Exception | None]) -> Outcome:
    outcome, error = added
    if error is not None:
        raise error
    return outcome
