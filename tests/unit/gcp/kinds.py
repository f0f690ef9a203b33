"""The kind of error that each of Google's status codes becomes."""

from grpc import StatusCode

from tally.errors import BackendError, Refused, Rejected, Unavailable

KINDS: dict[StatusCode, type[BackendError]] = {
    StatusCode.FAILED_PRECONDITION: Refused,
    StatusCode.ALREADY_EXISTS: Refused,
    StatusCode.NOT_FOUND: Refused,
    StatusCode.ABORTED: Refused,
    StatusCode.INVALID_ARGUMENT: Rejected,
    StatusCode.CANCELLED: Unavailable,
    StatusCode.UNKNOWN: Unavailable,
    StatusCode.DEADLINE_EXCEEDED: Unavailable,
    StatusCode.PERMISSION_DENIED: Unavailable,
    StatusCode.UNAUTHENTICATED: Unavailable,
    StatusCode.RESOURCE_EXHAUSTED: Unavailable,
    StatusCode.OUT_OF_RANGE: Unavailable,
    StatusCode.UNIMPLEMENTED: Unavailable,
    StatusCode.INTERNAL: Unavailable,
    StatusCode.UNAVAILABLE: Unavailable,
    StatusCode.DATA_LOSS: Unavailable,
}
