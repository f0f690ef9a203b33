"""What Google Cloud runs: `functions-framework --source functions/main.py --target public`, `admin` or `run_task`."""

import os

from functions_framework import aio
from starlette.requests import Request

from tally import bootstrap
from tally.web.answer import Answer

bootstrap.start(os.environ)


@aio.http
async def public(request: Request) -> Answer:
    return await bootstrap.public(request)


@aio.http
async def admin(request: Request) -> Answer:
    return await bootstrap.admin(request)


@aio.http
async def run_task(request: Request) -> Answer:
    return await bootstrap.run_task(request)
