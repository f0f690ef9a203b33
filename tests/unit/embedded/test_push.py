"""Where embedded's push tasks go."""

import asyncio

import pytest

from tally.embedded.push import Sender
from tally.ports import HttpTask

TARGET = "http://127.0.0.1:8080/v1/run/"


def task(url: str) -> HttpTask:
    return HttpTask(id="t", url=url, headers={"a": "b"}, body=b"x")


async def test_tasks_for_run_task_stay_in_the_process_and_others_leave_it() -> None:
    seen: list[tuple[str, str]] = []

    async def receive(queue: str, headers: dict[str, str], body: bytes) -> int:
        seen.append(("run_task", queue))
        return 200

    async def elsewhere(request: HttpTask) -> int:
        seen.append(("elsewhere", request.url))
        return 404

    sender = Sender(TARGET, receive, elsewhere)
    assert await sender.send(task(f"{TARGET}mail")) == 200
    assert await sender.send(task("http://shop.example/v1/run/mail")) == 404
    assert seen == [("run_task", "mail"), ("elsewhere", "http://shop.example/v1/run/mail")]


async def test_a_handler_slower_than_its_deadline_is_left_running() -> None:
    go, ended = asyncio.Event(), asyncio.Event()

    async def receive(queue: str, headers: dict[str, str], body: bytes) -> int:
        await go.wait()
        ended.set()
        return 200

    async def elsewhere(request: HttpTask) -> int:
        return 404

    sender = Sender(TARGET, receive, elsewhere)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await sender.send(task(f"{TARGET}mail"))
    go.set()
    async with asyncio.timeout(5):
        await ended.wait()
