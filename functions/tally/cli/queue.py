"""`tally queue …`: look at pull queues, add to them, stop them, and deal with their dead letters."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from tally import bootstrap, config, limits
from tally.bootstrap import World
from tally.cli.console import Group, import_from_here, json_option, print_json, run
from tally.clock import to_datetime
from tally.errors import InvalidInput, NotFound
from tally.tasks import envelope
from tally.tasks.inspection import Listed, TaskInfo
from tally.tasks.push import PushQueue
from tally.tasks.queue import PullQueue
from tally.tasks.task import Options, Task

T = TypeVar("T")
SHOWN_ERROR = 60
_limit = click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, limits.LISTED_TASKS), help="Tasks at most."
)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(cls=Group)
def queue() -> None:
    """Look at pull queues, add to them, pause, purge, and replay what failed."""


@queue.command()
@json_option
@click.argument("queue_name", metavar="QUEUE")
def stats(queue_name: str, as_json: bool) -> None:
    """Print a queue's numbers.

    \b
    Example:
      tally queue stats mail
    """
    counted = _run(queue_name, lambda target: target.stats())
    shown = {**asdict(counted), "oldest_eta": _instant(counted.oldest_eta)}
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        click.echo(f"{name:<21} {'-' if value is None else value}")


@queue.command("list")
@json_option
@_limit
@click.option("--state", type=click.Choice(["all", "leased", "dead"]), default="all", show_default=True)
@click.argument("queue_name", metavar="QUEUE")
def list_(queue_name: str, state: Listed, limit: int, as_json: bool) -> None:
    """List a queue's tasks by ETA, without payloads.

    \b
    Example:
      tally queue list mail --state leased
    """
    _print(_run(queue_name, lambda target: target.list(state, limit=limit)), as_json)


@queue.command()
@json_option
@click.argument("queue_name", metavar="QUEUE")
@click.argument("name")
def peek(queue_name: str, name: str, as_json: bool) -> None:
    """Print one task with its payload, without leasing it.

    \b
    Example:
      tally queue peek mail invoice-7
    """
    info = _run(queue_name, lambda target: target.peek(name))
    if info is None:
        raise NotFound(f"queue {queue_name} has no task {name}")
    task = msgspec.to_builtins(envelope.of(info.task), builtin_types=(msgspec.Raw,))
    shown = {**_summary(info), "task": {**task, "json": info.task.value()} if "json" in task else task}
    if as_json:
        print_json(shown)
        return
    for field, value in shown.items():
        click.echo(f"{field:<9} {'-' if value is None else value}")


@queue.command()
@json_option
@click.argument("queue_name", metavar="QUEUE")
@click.argument("payload")
@click.option("--text", is_flag=True, help="PAYLOAD is text; else it is JSON.")
@click.option("--name", help="Name: a second task of that name is refused.")
@click.option("--tag", help="Tag to lease by.")
@click.option("--delay", type=float, help="Seconds until it may run.")
def add(queue_name: str, payload: str, text: bool, as_json: bool, **options: Any) -> None:
    """Add one task.

    \b
    Example:
      tally queue add mail '{"to": 7}' --tag invoices --delay 60
    """
    task = _task(payload, text, options)
    outcome = _run(queue_name, lambda target: target.add(task))
    if as_json:
        print_json({"name": outcome.name, "status": outcome.status})
    else:
        click.echo(f"{outcome.name}: {outcome.status}")


@queue.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("name")
def delete(queue_name: str, name: str) -> None:
    """Delete a task, whoever holds it.

    \b
    Example:
      tally queue delete mail invoice-7
    """
    _must(_run(queue_name, lambda target: target.delete(name)), f"queue {queue_name} has no task {name}")
    click.echo(f"{name}: deleted")


@queue.command("run")
@click.argument("queue_name", metavar="QUEUE")
@click.argument("name")
def run_now(queue_name: str, name: str) -> None:
    """Make a task that waits for its time or its next attempt due now; a push queue sends it even while paused.

    For a call of a task function see `tally task run`.

    \b
    Example:
      tally queue run mail invoice-7
    """
    if queue_name in config.load(os.environ).push_queues:
        waited = _pushed(queue_name, lambda target: target.run_now(name))
    else:
        waited = _run(queue_name, lambda target: target.run_now(name))
    _must(waited, f"queue {queue_name}: no task {name} waits")
    click.echo(f"{name}: due now")


@queue.command()
@_yes
@click.argument("queue_name", metavar="QUEUE")
def purge(queue_name: str, yes: bool) -> None:
    """Delete all tasks of a queue, leased ones too. Dead letters stay.

    \b
    Example:
      tally queue purge mail --yes
    """
    if not yes:
        click.confirm(f"Delete every task of queue {queue_name}?", abort=True, err=True)
    click.echo(f"{_run(queue_name, lambda target: target.purge())} tasks deleted")


@queue.command()
@click.argument("queue_name", metavar="QUEUE")
def pause(queue_name: str) -> None:
    """Lease no more tasks of a queue; what is leased may be finished.

    \b
    Example:
      tally queue pause mail
    """
    _run(queue_name, lambda target: target.pause())
    click.echo(f"{queue_name}: paused")


@queue.command()
@click.argument("queue_name", metavar="QUEUE")
def resume(queue_name: str) -> None:
    """Lease tasks of a queue again.

    \b
    Example:
      tally queue resume mail
    """
    _run(queue_name, lambda target: target.resume())
    click.echo(f"{queue_name}: running")


@queue.command()
@click.argument("queue_name", metavar="QUEUE")
def sweep(queue_name: str) -> None:
    """Remove what finished tasks left, once their names are free. (In the cloud the store does it.)

    \b
    Example:
      tally queue sweep mail
    """
    click.echo(f"{_run(queue_name, lambda target: target.sweep())} removed")


@queue.group(cls=Group)
def dead() -> None:
    """List, replay or drop the tasks that were given up, expired or rejected."""


@dead.command("list")
@json_option
@_limit
@click.argument("queue_name", metavar="QUEUE")
def dead_list(queue_name: str, limit: int, as_json: bool) -> None:
    """List a queue's dead letters, the oldest first, each with its last error.

    \b
    Example:
      tally queue dead list mail
    """
    _print(_run(queue_name, lambda target: target.list("dead", limit=limit)), as_json)


@dead.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of them.")
def replay(queue_name: str, names: tuple[str, ...], every: bool) -> None:
    """Make dead letters tasks again, due now and with all their attempts.

    \b
    Example:
      tally queue dead replay mail invoice-7
    """
    _each(queue_name, names, every, "replayed", lambda target, name: target.replay(name))


@dead.command()
@click.argument("queue_name", metavar="QUEUE")
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of them.")
@_yes
def drop(queue_name: str, names: tuple[str, ...], every: bool, yes: bool) -> None:
    """Delete dead letters for good.

    \b
    Example:
      tally queue dead drop mail --all
    """
    if every and not yes:
        click.confirm(f"Delete every dead letter of queue {queue_name}?", abort=True, err=True)
    _each(queue_name, names, every, "dropped", lambda target, name: target.drop(name))


def _each(
    queue_name: str, names: tuple[str, ...], every: bool, done: str, act: Callable[[PullQueue, str], Awaitable[bool]]
) -> None:
    if bool(names) == every:
        raise click.UsageError("give names, or else --all")

    async def work(target: PullQueue) -> list[tuple[str, bool]]:
        results = [(name, await act(target, name)) for name in names]
        while every and (found := await target.list("dead", limit=limits.LISTED_TASKS)):
            results += [(info.name, await act(target, info.name)) for info in found]
        return results

    results = _run(queue_name, work)
    for name, was_there in results:
        if not every:
            click.echo(f"{name}: {done if was_there else 'no such dead letter'}")
    count = sum(was_there for _, was_there in results)
    click.echo(f"{count} {done}")
    _must(every or count == len(names), "some names are no dead letters")


def _run(queue_name: str, act: Callable[[PullQueue], Awaitable[T]]) -> T:
    async def work() -> T:
        async with bootstrap.opened(config.load(os.environ)) as backend:
            return await act(bootstrap.pull_queues(backend, World())(queue_name))

    return run(work())


def _pushed(queue_name: str, act: Callable[[PushQueue], Awaitable[T]]) -> T:
    async def work() -> T:
        import_from_here()
        async with bootstrap.task_queues() as system:
            return await act(system.push(queue_name))

    return run(work())


def _task(payload: str, text: bool, options: dict[str, Any]) -> Task:
    given = Options(**{name: value for name, value in options.items() if value is not None})  # type: ignore[typeddict-item]  # click's options are the TypedDict's
    if text:
        return Task.text(payload, **given)
    try:
        return Task.json(msgspec.json.decode(payload), **given)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"payload {payload!r} is not JSON ({error}): quote it, or give --text") from error


def _must(good: bool, message: str) -> None:
    if not good:
        raise NotFound(message)


def _print(infos: Sequence[TaskInfo], as_json: bool) -> None:
    if as_json:
        print_json([_summary(info) for info in infos])
        return
    table = Table()
    for column in ("name", "state", "tag", "eta", "attempts", "bytes", "last error"):
        table.add_column(column, overflow="fold")  # names are there to be copied
    for info in infos:
        error = (info.error or "").partition("\n")[0]
        shown = error if len(error) <= SHOWN_ERROR else f"{error[:SHOWN_ERROR]}…"
        table.add_row(
            info.name, info.state, info.task.tag or "", _instant(info.eta), str(info.attempts), str(info.size), shown
        )
    Console().print(table)


def _summary(info: TaskInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "state": info.state,
        "tag": info.task.tag,
        "eta": _instant(info.eta),
        "added_at": _instant(info.added_at),
        "attempts": info.attempts,
        "bytes": info.size,
        "error": info.error,
    }


def _instant(at: int | None) -> str | None:
    return None if at is None else to_datetime(at).isoformat(timespec="milliseconds")
