"""`tally queue …`: the queues, their numbers, what can be done to one as a whole; tasks are in queue_task.py."""

import os
from dataclasses import asdict
from typing import NamedTuple

import click
from rich.table import Table

from tally import bootstrap, config
from tally.bootstrap import World
from tally.cli.console import Group, import_from_here, json_option, print_json, run, tables
from tally.cli.queue_dead import dead
from tally.cli.queue_target import (
    instant,
    limit_option,
    on_either,
    on_pulled,
    print_fields,
    print_tasks,
    pushed,
    queue_argument,
    yes_option,
)
from tally.cli.queue_task import add, delete, peek, run_now
from tally.clock import SECOND, SystemClock
from tally.ports import DispatchStats
from tally.tasks.inspection import Listed
from tally.tasks.push import PushQueue
from tally.tasks.queue import PullQueue
from tally.tasks.start_rate import StartRate
from tally.tasks.stats import QueueStats


@click.group(cls=Group)
def queue() -> None:
    """Look at queues, add to them, pause, purge, and replay what failed."""


for command in (add, dead, delete, peek, run_now):
    queue.add_command(command)


@queue.command("list")
@json_option
@limit_option
@click.option("--state", type=click.Choice(["all", "leased", "dead"]), default="all", show_default=True)
@click.argument("queue_name", metavar="[QUEUE]", required=False)
def list_(queue_name: str | None, state: Listed, limit: int, as_json: bool) -> None:
    """List the queues with their numbers; or the tasks of one pull queue by ETA, without payloads.

    \b
    Examples:
      tally queue list
      tally queue list mail --state leased
    """
    if queue_name is None:
        _print_queues(run(_numbers()), as_json)
    else:
        print_tasks(on_pulled(queue_name, lambda target: target.list(state, limit=limit)), as_json)


@queue.command()
@json_option
@queue_argument
def stats(queue_name: str, as_json: bool) -> None:
    """Print a queue's numbers.

    \b
    Example:
      tally queue stats mail
    """
    counted: QueueStats | DispatchStats = on_either(queue_name, _stats)
    print_fields(_shown(counted), as_json)


@queue.command()
@yes_option
@queue_argument
def purge(queue_name: str, yes: bool) -> None:
    """Delete all tasks of a queue, leased ones too. Dead letters stay.

    \b
    Example:
      tally queue purge mail --yes
    """
    if not yes:
        on_either(queue_name, _stats)  # nobody is asked about a queue that is not there
        click.confirm(f"Delete every task of queue {queue_name}?", abort=True, err=True)
    if pushed(queue_name):
        on_either(queue_name, lambda target: target.purge())
        click.echo(f"{queue_name}: purged")
    else:
        deleted = on_pulled(queue_name, lambda target: target.purge())
        click.echo(f"{deleted} task{'' if deleted == 1 else 's'} deleted")


@queue.command()
@queue_argument
def pause(queue_name: str) -> None:
    """Lease no more tasks of a queue; what is leased may be finished. A queue that is not there yet is made.

    \b
    Example:
      tally queue pause mail
    """
    made = on_either(queue_name, _pause, make=True)
    click.echo(f"{queue_name}: paused{' (a new queue: no task was ever added to it)' if made else ''}")


@queue.command()
@queue_argument
def resume(queue_name: str) -> None:
    """Lease tasks of a queue again.

    \b
    Example:
      tally queue resume mail
    """
    on_either(queue_name, lambda target: target.resume())
    click.echo(f"{queue_name}: running")


@queue.command()
@queue_argument
@click.argument("per_second", type=float, required=False)
@click.option("--burst", type=int, help="Tasks at once at most; by default a second's.")
@click.option("--off", is_flag=True, help="Let workers lease as fast as they ask.")
def rate(queue_name: str, per_second: float | None, burst: int | None, off: bool) -> None:
    """Limit how many tasks a second all workers together take from a pull queue; one not there yet is made.

    \b
    Example:
      tally queue rate mail 5 --burst 20
    """
    if (per_second is None) is not off:
        raise click.UsageError("give PER_SECOND, or else --off")
    limit = None if per_second is None else StartRate.of(per_second, burst)
    on_pulled(queue_name, lambda target: target.set_rate(limit), make=limit is not None)
    click.echo(f"{queue_name}: {'no rate' if limit is None else f'{limit.per_second:g}/s, burst {limit.burst}'}")


@queue.command()
@queue_argument
def sweep(queue_name: str) -> None:
    """Remove what finished tasks left, once their names are free. (In the cloud the store does it.)

    \b
    Example:
      tally queue sweep mail
    """
    click.echo(f"{on_pulled(queue_name, lambda target: target.sweep())} removed")


async def _pause(target: PullQueue | PushQueue) -> bool:
    """Pause a queue; say whether that made it."""
    made = isinstance(target, PullQueue) and not await target.known()
    await target.pause()
    return made


async def _stats(target: PullQueue | PushQueue) -> QueueStats | DispatchStats:
    return await target.stats()


class Numbered(NamedTuple):
    """A queue: its kind is pull or push."""

    name: str
    kind: str
    numbers: QueueStats | DispatchStats


async def _numbers() -> list[Numbered]:
    """Return the pull queues that were ever added to, paused or given a rate, and the queues that push."""
    settings = config.load(os.environ)
    async with bootstrap.opened(settings) as backend:
        queues = bootstrap.pull_queues(backend, World())
        pulled = [Numbered(name, "pull", await queues(name).stats()) async for name in queues.names()]
    if not settings.push_queues:
        return pulled
    import_from_here()
    async with bootstrap.task_queues() as system:
        pushed = [Numbered(name, "push", await system.push(name).stats()) for name in settings.push_queues]
    return [*pulled, *pushed]


def _print_queues(found: list[Numbered], as_json: bool) -> None:
    if as_json:
        print_json([{"name": name, "kind": kind, **_shown(numbers)} for name, kind, numbers in found])
        return
    table = Table()
    for column in ("queue", "kind", "tasks", "in flight", "dead", "last minute", "first due"):
        table.add_column(column, overflow="fold")
    for name, kind, numbers in found:
        counts = (numbers.tasks, numbers.in_flight, getattr(numbers, "dead", None), numbers.executed_last_minute)
        shown = ("-" if count is None else str(count) for count in counts)
        table.add_row(name, kind, *shown, "paused" if numbers.paused else _first(numbers.oldest_eta))
    tables().print(table)


def _first(eta: int | None) -> str:
    if eta is None:
        return "-"
    away = (eta - SystemClock().now()) / SECOND
    return f"in {away:,.0f} s" if away > 0 else f"{-away:,.0f} s ago"


def _shown(numbers: QueueStats | DispatchStats) -> dict[str, object]:
    return {**asdict(numbers), "oldest_eta": instant(numbers.oldest_eta)}
