"""The commands' HTTP client: JSON over one address, with the standard library alone."""

import http.client
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import click
import msgspec

from tally.retry import full_jitter

F = TypeVar("F", bound=Callable[..., Any])
_REMEDY = "is it up? `make run` starts one here, --url or TALLY_URL names another"
_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


class Unreachable(click.ClickException):
    """No answer came; what was sent may have arrived."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the value of an answer below 400; raise a ClickException with the problem's detail otherwise."""
        try:
            value = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            raise click.ClickException(f"the server answers {self.status}, without JSON") from None
        if self.status >= 400:
            detail = value.get("detail", "no detail") if isinstance(value, dict) else value
            code = value.get("code", self.status) if isinstance(value, dict) else self.status
            raise click.ClickException(f"{detail} ({code})")
        return value


class Client:
    """`token`: an identity token for a function that only some may call."""

    def __init__(self, url: str, token: str | None = None, *, timeout_seconds: float = 15) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _CONNECTIONS or not parts.hostname:
            raise click.BadParameter(f"{url!r} is no http or https address", param_hint="--url")
        self._url = url
        self._host = parts.netloc
        self._connect = _CONNECTIONS[parts.scheme]
        self._base = parts.path.rstrip("/")
        self._timeout = timeout_seconds
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def call(self, method: str, path: str, value: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request; raise Unreachable if no answer comes."""
        sent = {**self._headers, **(headers or {})}
        body = None
        if value is not None:
            body = msgspec.json.encode(value)
            sent["Content-Type"] = "application/json"
        connection = self._connect(self._host, timeout=self._timeout)
        try:
            connection.request(method, self._base + path, body, sent)
            reply = connection.getresponse()
            return Answer(reply.status, reply.headers, reply.read())
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(f"{self._url} does not answer: {reason}; {_REMEDY}") from error
        finally:
            connection.close()


def insist(
    client: Client, path: str, value: object, give_up: float, trouble: Callable[[str], object] | None = None
) -> Answer:
    """Post until the answer is none of a passing trouble, or `give_up` seconds are over: then return or raise the last.

    `trouble` is told of the first one, before the wait. Only for what may be sent again: a vote with an identity.
    """
    until = time.monotonic() + give_up
    random, attempt = Random(), 0
    while True:
        attempt += 1
        wait = full_jitter(attempt, base=0.2, cap=5, random=random)
        try:
            answer = client.call("POST", path, value)
            if answer.status != 503 and answer.status != 429:
                return answer
            wait = max(wait, float(answer.headers.get("Retry-After") or 0))
            problem = f"the server answers {answer.status}"
        except Unreachable as error:
            if time.monotonic() + wait > until:
                raise
            problem = error.message
        else:
            if time.monotonic() + wait > until:
                return answer
        if trouble is not None and attempt == 1:
            trouble(problem)
        time.sleep(wait)


def poll_path(poll_id: str, rest: str = "") -> str:
    return f"/v1/polls/{quote(poll_id, safe='')}{rest}"


def server_options(command: F) -> F:
    """Give a command --url and --token, as its parameters `url` and `token`."""
    url = click.option(
        "--url",
        envvar="TALLY_URL",
        default="http://127.0.0.1:8080",
        show_default=True,
        show_envvar=True,
        help="Address of the server.",
    )
    token = click.option(
        "--token", envvar="TALLY_TOKEN", show_envvar=True, help="Identity token, where the server asks for one."
    )
    return url(token(command))
