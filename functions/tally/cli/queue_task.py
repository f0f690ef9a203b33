"""`tally queue add|peek|delete|run`: one task of a queue."""

from typing import Any

import click
import msgspec

from tally.cli.console import json_option, print_json
from tally.cli.queue_target import must, on_either, on_pulled, print_fields, queue_argument, summary
from tally.errors import InvalidInput, NotFound
from tally.tasks import envelope
from tally.tasks.task import Task


@click.command()
@json_option
@queue_argument
@click.argument("name")
def peek(queue_name: str, name: str, as_json: bool) -> None:
    """Print one task with its payload, without leasing it.

    \b
    Example:
      tally queue peek mail invoice-7
    """
    info = on_pulled(queue_name, lambda target: target.peek(name))
    if info is None:
        raise NotFound(f"queue {queue_name} has no task {name}")
    task = msgspec.to_builtins(envelope.of(info.task), builtin_types=(msgspec.Raw,))
    shown = {**task, "json": info.task.value()} if "json" in task else task
    print_fields({**summary(info), "task": shown}, as_json)


@click.command()
@json_option
@queue_argument
@click.argument("payload")
@click.option("--text", is_flag=True, help="PAYLOAD is text; else it is JSON.")
@click.option("--name", help="Name: a second task of that name is refused.")
@click.option("--tag", help="Tag to lease by.")
@click.option("--delay", type=float, help="Seconds until it may run.")
def add(queue_name: str, payload: str, text: bool, as_json: bool, **options: Any) -> None:
    """Add one task; the first makes its queue.

    \b
    Example:
      tally queue add mail '{"to": 7}' --tag invoices --delay 60
    """
    task = _task(payload, text, options)
    outcome = on_pulled(queue_name, lambda target: target.add(task), make=True)
    if as_json:
        print_json({"name": outcome.name, "status": outcome.status})
    else:
        click.echo(f"{outcome.name}: {outcome.status}")


@click.command()
@queue_argument
@click.argument("name")
def delete(queue_name: str, name: str) -> None:
    """Delete a task, whoever holds it.

    \b
    Example:
      tally queue delete mail invoice-7
    """
    must(on_either(queue_name, lambda target: target.delete(name)), f"queue {queue_name} has no task {name}")
    click.echo(f"{name}: deleted")


@click.command("run")
@queue_argument
@click.argument("name")
def run_now(queue_name: str, name: str) -> None:
    """Make a task that waits for its time or its next attempt due now; a push queue sends it even while paused.

    For a call of a task function see `tally task run`.

    \b
    Example:
      tally queue run mail invoice-7
    """
    waited = on_either(queue_name, lambda target: target.run_now(name))
    must(waited, f"queue {queue_name}: no task {name} waits")
    click.echo(f"{name}: due now")


def _task(payload: str, text: bool, options: dict[str, Any]) -> Task:
    given = {name: value for name, value in options.items() if value is not None}
    if text:
        return Task.text(payload, **given)
    try:
        return Task.json(msgspec.json.decode(payload), **given)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"payload {payload!r} is not JSON ({error}): quote it, or give --text") from error
