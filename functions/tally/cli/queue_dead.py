"""`tally queue dead`: the dead letters of a pull queue."""

from collections.abc import Awaitable, Callable

import click

from tally import limits
from tally.cli.console import Group, json_option
from tally.cli.queue_target import limit_option, must, on_pulled, print_tasks, queue_argument, yes_option
from tally.tasks.queue import PullQueue


@click.group(cls=Group)
def dead() -> None:
    """List, replay or drop the tasks that were given up, expired or rejected."""


@dead.command("list")
@json_option
@limit_option
@queue_argument
def dead_list(queue_name: str, limit: int, as_json: bool) -> None:
    """List a queue's dead letters, the oldest first, each with its last error.

    \b
    Example:
      tally queue dead list mail
    """
    print_tasks(on_pulled(queue_name, lambda target: target.list("dead", limit=limit)), as_json)


@dead.command()
@queue_argument
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of them.")
def replay(queue_name: str, names: tuple[str, ...], every: bool) -> None:
    """Make dead letters tasks again, due now and with all their attempts.

    \b
    Example:
      tally queue dead replay mail invoice-7
    """
    _either(names, every)
    _each(queue_name, names, every, "replayed", lambda target, name: target.replay(name))


@dead.command()
@queue_argument
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of them.")
@yes_option
def drop(queue_name: str, names: tuple[str, ...], every: bool, yes: bool) -> None:
    """Delete dead letters for good.

    \b
    Example:
      tally queue dead drop mail --all
    """
    _either(names, every)
    if every and not yes:
        on_pulled(queue_name, lambda target: target.known())  # nobody is asked about a queue that is not there
        click.confirm(f"Delete every dead letter of queue {queue_name}?", abort=True, err=True)
    _each(queue_name, names, every, "dropped", lambda target, name: target.drop(name))


def _either(names: tuple[str, ...], every: bool) -> None:
    if bool(names) == every:
        raise click.UsageError("give names, or else --all")


def _each(
    queue_name: str, names: tuple[str, ...], every: bool, done: str, act: Callable[[PullQueue, str], Awaitable[bool]]
) -> None:
    async def work(target: PullQueue) -> list[tuple[str, bool]]:
        results = [(name, await act(target, name)) for name in names]
        while every and (found := await target.list("dead", limit=limits.LISTED_TASKS)):
            results += [(info.name, await act(target, info.name)) for info in found]
        return results

    results = on_pulled(queue_name, work)
    for name, was_there in results:
        if not every:
            click.echo(f"{name}: {done if was_there else 'no such dead letter'}")
    count = sum(was_there for _, was_there in results)
    click.echo(f"{count} {done}")
    must(every or count == len(names), "some names are no dead letters")
