"""Sends an attempt's request and judges the answer, as the service does."""

import re
import time
from email.utils import parsedate_to_datetime

import aiohttp
from yarl import URL

from emulator.cloud_tasks.request import HttpCall
from tally.clock import SECOND
from tally.tasks.entry import DAY, Outcome

REDIRECTS = 10
CHUNK = 65_536
KEEPALIVE_SECONDS = 1  # less than any server's, so that none closes a connection just as it is used again
CODE = re.compile(r"HTTP status code (\d{3})")
# google.rpc.Code of an HTTP status (google/rpc/code.proto)
RPC = {
    400: ("INVALID_ARGUMENT", 3),
    401: ("UNAUTHENTICATED", 16),
    403: ("PERMISSION_DENIED", 7),
    404: ("NOT_FOUND", 5),
    409: ("ABORTED", 10),
    416: ("OUT_OF_RANGE", 11),
    429: ("RESOURCE_EXHAUSTED", 8),
    499: ("CANCELLED", 1),
    500: ("INTERNAL", 13),
    501: ("UNIMPLEMENTED", 12),
    503: ("UNAVAILABLE", 14),
    504: ("DEADLINE_EXCEEDED", 4),
}
UNREACHABLE = Outcome(success=False, status="UNAVAILABLE(14): no HTTP response", answered=False)
LATE = Outcome(
    success=False, status="DEADLINE_EXCEEDED(4): no HTTP response before the dispatch deadline", answered=False
)


class Target:
    """An HTTP client whose connections the schedule bounds. It follows HTTP targets' redirects, never App Engine's."""

    def __init__(self, *, follow_redirects: bool = True) -> None:
        self._follow = follow_redirects
        self._session: aiohttp.ClientSession | None = None

    async def send(self, call: HttpCall) -> Outcome:
        """Perform a request; the caller cancels it when it takes too long. What the target does raises nothing."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
            )
        try:
            async with self._session.request(
                call.method,
                URL(call.url),
                headers=call.headers,
                data=call.body or None,
                allow_redirects=self._follow and not call.app_engine,
                max_redirects=REDIRECTS,
            ) as response:
                async for _ in response.content.iter_chunked(CHUNK):
                    pass
                return judge(response.status, response.headers.get("Retry-After"), app_engine=call.app_engine)
        except aiohttp.TooManyRedirects as error:
            return judge(error.status or 302, None, app_engine=call.app_engine)
        except (aiohttp.ClientError, OSError, ValueError):
            return UNREACHABLE

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def judge(code: int, retry_after: str | None, *, app_engine: bool) -> Outcome:
    """Return what an HTTP status means: 2xx is success; 503, and 429 of an HTTP target, slow the queue."""
    if 200 <= code < 300:
        return Outcome(success=True, status=f"OK(0): HTTP status code {code}")
    name, number = RPC.get(code, ("UNKNOWN", 2))
    overload = code == 503 or (code == 429 and not app_engine)
    return Outcome(
        success=False,
        status=f"{name}({number}): HTTP status code {code}",
        overload=overload,
        retry_after=parse_retry_after(retry_after) if overload and not app_engine else 0,
    )


def parse_retry_after(value: str | None) -> int:
    """Return a Retry-After header as µs from now, at most a day; 0 where there is none or it makes no sense."""
    if value is None:
        return 0
    if value.strip().isdigit():
        seconds = float(value)
    else:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return 0
    return max(0, min(round(seconds * SECOND), DAY))


def http_code(status: str) -> int:
    """Return the HTTP code in an attempt's status, 0 where no answer came."""
    match = CODE.search(status)
    return int(match[1]) if match else 0
