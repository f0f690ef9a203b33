"""The one error that an API call answers with: a gRPC status and a message that names the value and the limit."""

from http import HTTPStatus

from grpc import StatusCode

HTTP = {
    StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    StatusCode.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    StatusCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    StatusCode.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    StatusCode.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    StatusCode.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    StatusCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


class ApiError(Exception):
    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def number(self) -> int:
        """The status as google.rpc.Code."""
        return int(self.code.value[0])

    @property
    def http(self) -> HTTPStatus:
        return HTTP.get(self.code, HTTPStatus.INTERNAL_SERVER_ERROR)


def invalid(message: str) -> ApiError:
    return ApiError(StatusCode.INVALID_ARGUMENT, message)
