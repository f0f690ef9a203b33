"""The ceiling of an HTTP function: an async handler that reads the body and does nothing."""

from functions_framework import aio
from starlette.requests import Request
from starlette.responses import Response


@aio.http
async def noop(request: Request) -> Response:
    if request.method == "GET":
        return Response()
    await request.body()
    return Response(b'{"ballot":"00000000000000000000000000000000"}', 202, media_type="application/json")
