"""Task functions of an imaginary shop, which the processes of the tests beside it import."""

import time

from tally.retry import RetryPolicy
from tally.tasks.context import current
from tally.tasks.deferred import task

QUICK = RetryPolicy(max_attempts=3, min_backoff=0.1, max_backoff=0.2)


@task("shop.add", retry=QUICK)
async def add(a: int, b: int) -> int:
    return a + b


@task("shop.third-time", retry=QUICK)
def third_time() -> int:
    if current().attempt < 3:
        raise ConnectionError("the bank does not answer")
    return current().attempt


@task("shop.broken", retry=QUICK)
async def broken() -> None:
    raise ValueError("é" * 1_501)


@task("shop.size", retry=QUICK)
async def size(text: str) -> str:
    return text[::-1]


@task("shop.stuck", queue="stuck")
def stuck() -> None:
    time.sleep(600)
