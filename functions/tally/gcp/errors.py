"""Translates what Google's libraries raise into the three errors of the ports.

FAILED_PRECONDITION, ALREADY_EXISTS, NOT_FOUND and ABORTED are Refused: nothing was written, read and try again.
INVALID_ARGUMENT is Rejected: this request can never succeed. Every other code is an outage: Unavailable. ABORTED is
only safe to call Refused because whoever commits resolves all three by reading.
"""

from typing import Final

from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth.exceptions import GoogleAuthError
from grpc import RpcError, StatusCode

from tally.errors import BackendError, Refused, Rejected, Unavailable

# What a call may raise on its way: the library's errors, our own time limit, and gRPC's where the library passes it on.
FAILURES: Final = (GoogleAPICallError, RetryError, GoogleAuthError, RpcError, TimeoutError)
_KINDS: Final = {
    StatusCode.FAILED_PRECONDITION: Refused,
    StatusCode.ALREADY_EXISTS: Refused,
    StatusCode.NOT_FOUND: Refused,
    StatusCode.ABORTED: Refused,
    StatusCode.INVALID_ARGUMENT: Rejected,
}


def translate(call: str, error: BaseException) -> BackendError:
    """Return the port's error for one of FAILURES; `status` is the code's name."""
    code = _code(error)
    kind = _KINDS.get(code, Unavailable)
    return kind(f"{call}: {code.name}: {_detail(error)}", status=code.name)


def _code(error: BaseException) -> StatusCode:
    if isinstance(error, RetryError) and error.cause is not None:
        return _code(error.cause)
    if isinstance(error, TimeoutError):
        return StatusCode.DEADLINE_EXCEEDED
    if isinstance(error, GoogleAuthError):
        return StatusCode.UNAUTHENTICATED
    code = getattr(error, "grpc_status_code", None)
    if code is None and isinstance(error, RpcError) and hasattr(error, "code"):
        code = error.code()
    return code if isinstance(code, StatusCode) else StatusCode.UNKNOWN


def _detail(error: BaseException) -> str:
    return str(getattr(error, "message", "") or error)[:500]
