"""Functions that run later, elsewhere: registered by name, called by value.

    @task("mail.send", queue="mail", retry=RetryPolicy(max_attempts=5), timeout=30)
    async def send(to: str, lines: list[Line]) -> int: ...

    handle = await send.call("a@b.example", lines)
    handle = await send.later(delay=60, name="welcome-7").call("a@b.example", lines)
    sent = await handle.result(timeout=10)

Names, not import paths, find the function, so that code can move between enqueue and run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from tally.errors import ConfigError, Conflict, InvalidInput
from tally.retry import RetryPolicy
from tally.tasks.call import PATIENT, VERSION, Call, encode
from tally.tasks.codec import Codec
from tally.tasks.context import inherited
from tally.tasks.events import RunEvent, kinds_of
from tally.tasks.failure import Errors, Failures
from tally.tasks.gather import Gather, check
from tally.tasks.middleware import Middleware, Subscriber
from tally.tasks.outcome import Outcome
from tally.tasks.semaphore import Concurrent
from tally.tasks.task import JSON, Duration, Task, Unique, check_queue, seconds

if TYPE_CHECKING:
    from tally.tasks.results import Handle

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
DEFAULT_RETRY = RetryPolicy(max_attempts=10, min_backoff=1.0, max_backoff=3_600.0, jitter=0.25)
DAY = 86_400.0
FAILURES = Failures()
Upgrade = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]


class When(TypedDict, total=False):
    """Options of one call, each overriding the function's: see `Task` for `name` to `headers`; `keep` as in `task`."""

    name: str | None
    unique: Unique | None
    delay: Duration | None
    eta: datetime | None
    expires: Duration | datetime | None
    tag: str | None
    headers: Mapping[str, str]
    retry: RetryPolicy | None
    queue: str | None
    keep: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call to be enqueued: the task says when and under which name."""

    function: "Deferred[..., Any]"
    arguments: bytes
    queue: str
    task: Task
    keep: float | None


class Outlet(Protocol):
    """Where calls go: the service that enqueues them."""

    async def enqueue(self, request: Request) -> "Handle": ...

    async def gather(
        self, function: "Deferred[..., Any]", group: str, arguments: bytes, name: str | None
    ) -> Outcome: ...


class Deferred(Generic[P, R]):
    """A registered function. Calling it runs it here and now, as if it were not registered."""

    def __init__(self, function: Callable[P, R], name: str, registry: "Registry", options: "Options") -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name
        self.options = options
        self.codec = Codec(function)
        self._registry = registry

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def call(self, *args: P.args, **kwargs: P.kwargs) -> "Handle":
        """Enqueue a call. Raises InvalidInput naming the argument that does not fit or cannot be encoded."""
        return await self.later().call(*args, **kwargs)

    def later(self, **when: Unpack[When]) -> "Later[P]":
        """Return the function with options for the calls to come: a time, a name, another queue."""
        return Later(self, when)

    def task(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Return a call as a task, to look at or to enqueue otherwise (in a transaction)."""
        return self.later().task(*args, **kwargs)

    async def gather(self, group: str, item: Any, *, name: str | None = None) -> Outcome:
        """Add an item to a group, whose items are handed over together (see `Gather`); a `name` adds it once.

        Raises InvalidInput as `call` does, TooLarge, Unavailable (then it may be in).
        """
        if self.options.gather is None:
            raise InvalidInput(f"task {self.name!r} does not gather: give it a `gather`")
        return await self._registry.outlet.gather(self, group, self.codec.encode((group, [item]), {}), name)

    async def enqueue(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], when: When) -> "Handle":
        return await self._registry.outlet.enqueue(self.request(args, kwargs, when))

    def request(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], when: When) -> Request:
        """Check arguments and options; raise InvalidInput."""
        own = ("queue", "keep", "headers")
        options: dict[str, Any] = {name: value for name, value in when.items() if name not in own}
        return Request(
            function=self,
            arguments=self.codec.encode(args, kwargs),
            queue=check_queue(when.get("queue") or self.options.queue),
            task=Task(content_type=JSON, headers=inherited(when.get("headers", {})), **options),
            keep=when.get("keep", self.options.keep),
        )


class Later(Generic[P]):
    """A registered function with options for its calls."""

    def __init__(self, deferred: Deferred[P, Any], when: When) -> None:
        self._deferred = deferred
        self._when = when

    async def call(self, *args: P.args, **kwargs: P.kwargs) -> "Handle":
        return await self._deferred.enqueue(args, kwargs, self._when)

    def task(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        request = self._deferred.request(args, kwargs, self._when)
        call = Call(
            v=VERSION,
            call=self._deferred.name,
            arguments=msgspec.Raw(request.arguments),
            keep=request.keep,
            retry=request.task.retry,
        )
        return replace(request.task, payload=encode(call), retry=PATIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a function runs. `timeout` in seconds: an async function is cancelled then; a plain one cannot be, so that

    its outcome is awaited all the same, and its claim given up only after twice that time. `soft_timeout`: seconds
    after which, before that, `SoftTimeout` is raised inside it. `keep`: seconds that the record of a run stays after
    its end, None for ever (at least an hour). `failures`: which errors are retried. `limit`: how many runs at once,
    over all workers. `gather`: when its groups of items are handed to it.
    """

    queue: str = "default"
    retry: RetryPolicy = DEFAULT_RETRY
    timeout: float = 600.0
    soft_timeout: float | None = None
    keep: float | None = DAY
    failures: Failures = FAILURES
    limit: Concurrent | None = None
    gather: Gather | None = None

    def __post_init__(self) -> None:
        check_queue(self.queue)
        seconds("timeout", self.timeout, at_least=0.001)
        if self.soft_timeout is not None:
            seconds("soft_timeout", self.soft_timeout, at_least=0.001)
            if self.soft_timeout >= self.timeout:
                raise InvalidInput(f"soft_timeout is {self.soft_timeout} s: want less than timeout, {self.timeout} s")
        seconds("keep", self.keep)


@dataclass(slots=True)
class Registry:
    """The functions of a program by name, the upgrades of calls that outlived theirs, and the middleware."""

    functions: dict[str, Deferred[..., Any]] = field(default_factory=dict)
    upgrades: dict[str, Upgrade] = field(default_factory=dict)
    middleware: list[Middleware] = field(default_factory=list)
    connected: Outlet | None = None
    limited: bool = False  # a function has a `limit`

    def task(
        self,
        name: str,
        *,
        queue: str = "default",
        retry: RetryPolicy = DEFAULT_RETRY,
        timeout: float = 600.0,
        soft_timeout: float | None = None,
        keep: float | None = DAY,
        fatal: Errors = (),
        retry_for: Errors = (BaseException,),
        uncounted: Errors = (),
        limit: Concurrent | None = None,
        gather: Gather | None = None,
    ) -> Callable[[Callable[P, R]], Deferred[P, R]]:
        """Register a function under a name that is unique in the program; see `Options` and `Failures`.

        Raises Conflict.
        """
        failures = Failures(fatal=fatal, retry_for=retry_for, uncounted=uncounted)
        options = Options(
            queue=queue,
            retry=retry,
            timeout=timeout,
            soft_timeout=soft_timeout,
            keep=keep,
            failures=failures,
            limit=limit,
            gather=gather,
        )

        def register(function: Callable[P, R]) -> Deferred[P, R]:
            if name in self.functions:
                raise Conflict(f"task {name!r} is registered already, by {self.functions[name].function!r}")
            deferred = Deferred(function, name, self, options)
            if limit is not None:
                limit.check(deferred.codec.parameters)
                self.limited = True
            if gather is not None:
                check(deferred.codec.parameters)
            self.functions[name] = deferred
            return deferred

        return register

    def function(self, name: str, function: Callable[..., Any]) -> Deferred[..., Any]:
        """Register, or replace, a function of the system's own, whose calls say everything themselves."""
        deferred = Deferred(function, name, self, Options())
        self.functions[name] = deferred
        return deferred

    def upgrade(self, name: str) -> Callable[[Upgrade], Upgrade]:
        """Register what becomes of calls of `name` that no function takes: (arguments) -> (name, arguments)."""

        def register(upgrade: Upgrade) -> Upgrade:
            if name in self.upgrades:
                raise Conflict(f"task {name!r} has an upgrade already")
            self.upgrades[name] = upgrade
            return upgrade

        return register

    def use(self, middleware: Middleware) -> None:
        """Put middleware around every run."""
        self.middleware.append(middleware)

    def on(self, *kinds: str) -> Callable[[Callable[[RunEvent], T]], Callable[[RunEvent], T]]:
        """Have a function told of events, of all kinds when none is named; see events.py. Raises InvalidInput."""
        wanted = kinds_of(kinds)

        def subscribe(function: Callable[[RunEvent], T]) -> Callable[[RunEvent], T]:
            self.use(Subscriber(wanted, function))
            return function

        return subscribe

    def connect(self, outlet: Outlet | None) -> None:
        """Say where calls go."""
        self.connected = outlet

    def check(self) -> None:
        """Raise InvalidInput when a function's annotations cannot travel; workers ask at their start."""
        for deferred in self.functions.values():
            deferred.codec.check()

    @property
    def outlet(self) -> Outlet:
        if self.connected is None:
            raise ConfigError("no task queue is connected: open one first (tally.bootstrap.open_tasks)")
        return self.connected


registry = Registry()
task = registry.task
upgrade = registry.upgrade
use = registry.use
on = registry.on


async def hand_back(jobs: "list[Any]") -> "list[Any]":
    """Enqueue a stopped pool's dropped jobs that are registered tasks; return those that are not."""
    rest = []
    for job in jobs:
        if isinstance(job.function, Deferred):
            await job.function.call(*job.args, **job.kwargs)
        else:
            rest.append(job)
    return rest
