"""What the commands about queues share: a queue by its name, pulled or pushed, and how tasks and instants are shown."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import click
import msgspec

from tally import bootstrap, config, limits
from tally.bootstrap import World
from tally.cli.console import Whole, import_from_here, print_json, run
from tally.clock import to_datetime
from tally.errors import NotFound
from tally.tasks.inspection import TaskInfo
from tally.tasks.push import PushQueue
from tally.tasks.queue import PullQueue

T = TypeVar("T")
SHOWN_ERROR = 60
queue_argument = click.argument("queue_name", metavar="QUEUE")
limit_option = click.option(
    "--limit", default=100, show_default=True, type=Whole(1, limits.LISTED_TASKS), help="Tasks at most."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def pushed(queue_name: str) -> bool:
    return queue_name in config.load(os.environ).push_queues


def on_pulled(queue_name: str, act: Callable[[PullQueue], Awaitable[T]], *, make: bool = False) -> T:
    """Act on a pull queue that is there, or with `make` on one that need not be.

    Raises NotFound for one that is not, or is pushed.
    """

    async def work() -> T:
        settings = config.load(os.environ)
        if queue_name in settings.push_queues:
            raise NotFound(f"queue {queue_name} is pushed (TALLY_PUSH_QUEUES): only its service knows its tasks")
        async with bootstrap.opened(settings) as backend:
            queues = bootstrap.pull_queues(backend, World())
            return await act(queues(queue_name) if make else await queues.existing(queue_name))

    return run(work())


def on_either(queue_name: str, act: Callable[[PullQueue | PushQueue], Awaitable[T]], *, make: bool = False) -> T:
    """Act on a queue as TALLY_PUSH_QUEUES says: a pushed or a pulled one; `make` as in `on_pulled`."""

    async def work() -> T:
        import_from_here()
        async with bootstrap.task_queues() as system:
            return await act(system.push(queue_name))

    return run(work()) if pushed(queue_name) else on_pulled(queue_name, act, make=make)


def must(good: bool, message: str) -> None:
    if not good:
        raise NotFound(message)


def print_fields(shown: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    width = max(map(len, shown))
    for name, value in shown.items():
        text = "-" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
        click.echo(f"{name:<{width}} {text}")


def print_tasks(infos: Sequence[TaskInfo], as_json: bool) -> None:
    if as_json:
        print_json([summary(info) for info in infos])
        return
    rows = [["name", "state", "tag", "eta", "attempts", "bytes", "last error"]]
    for info in infos:
        error = (info.error or "").partition("\n")[0]
        shown = error if len(error) <= SHOWN_ERROR else f"{error[:SHOWN_ERROR]}…"
        rows.append(
            [
                info.name,
                info.state,
                info.task.tag or "",
                instant(info.eta) or "",
                str(info.attempts),
                str(info.size),
                shown,
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:  # a task a line, however narrow the terminal: names are there to be copied
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def summary(info: TaskInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "state": info.state,
        "tag": info.task.tag,
        "eta": instant(info.eta),
        "added_at": instant(info.added_at),
        "attempts": info.attempts,
        "bytes": info.size,
        "error": info.error,
    }


def instant(at: int | None) -> str | None:
    return None if at is None else to_datetime(at).isoformat(timespec="milliseconds")
