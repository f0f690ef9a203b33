"""Every error that Tally raises on purpose, in one tree.

    TallyError                  code, message
    ├── InvalidInput            the caller's value is wrong; the message names the value and the limit
    │   ├── TooLarge            a size is over its limit
    │   └── UnsupportedMedia    a request's body is of a type that we do not read
    ├── NotFound                no such poll, queue, task
    ├── Conflict                the state forbids it: frozen field, stale revision, name in use
    │   └── LeaseExpired        the task is no longer this lease's; nothing was written
    ├── VoteRefused             the poll does not take this vote (not open, closed, option withdrawn)
    ├── TaskFailed              a run ended without a result; `state` and `traceback` say how
    ├── Forbidden               the caller may not do this
    ├── Busy                    try again after `retry_after` seconds; what was sent may be in
    ├── ConfigError             a setting is wrong; the message names its variable
    ├── UnsafeStore             the store does not honour the version guard: a worker must not run on it
    └── BackendError            what a port raises; `status` is the service's own word
        ├── Refused             a precondition or version did not hold, or contention: read and try again
        ├── Rejected            the service says that this request can never succeed
        └── Unavailable         anything else: an outage; a write may or may not have been applied

HTTP status codes are made from these in `web/`, and nowhere else.
"""


class TallyError(Exception):
    """Base of all; `code` is stable and part of the interface, the message is for people."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class InvalidInput(TallyError):
    code = "invalid-input"


class TooLarge(InvalidInput):
    code = "too-large"


class UnsupportedMedia(InvalidInput):
    code = "unsupported-media-type"


class NotFound(TallyError):
    code = "not-found"


class Conflict(TallyError):
    code = "conflict"


class LeaseExpired(Conflict):
    code = "lease-expired"


class VoteRefused(TallyError):
    code = "vote-refused"


class TaskFailed(TallyError):
    code = "task-failed"

    def __init__(self, message: str, *, state: str, traceback: str = "") -> None:
        super().__init__(message)
        self.state = state
        self.traceback = traceback


class Forbidden(TallyError):
    code = "forbidden"


class Busy(TallyError):
    code = "busy"

    def __init__(self, message: str, *, retry_after: float, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class ConfigError(TallyError):
    code = "config"


class UnsafeStore(TallyError):
    code = "unsafe-store"


class BackendError(TallyError):
    code = "backend"

    def __init__(self, message: str, *, status: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.status = status


class Refused(BackendError):
    code = "refused"


class Rejected(BackendError):
    code = "rejected"


class Unavailable(BackendError):
    code = "unavailable"
