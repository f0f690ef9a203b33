"""`tally task`: calls of task functions: make one, look at it, cancel it; list and replay what is parked."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from tally import bootstrap
from tally.cli.console import Group, import_from_here, json_option, print_json, run
from tally.clock import to_datetime
from tally.errors import InvalidInput, NotFound
from tally.tasks import deferred
from tally.tasks import run as runs
from tally.tasks.client import Tasks

T = TypeVar("T")


@click.group(cls=Group)
def task() -> None:
    """Calls of task functions and what became of them."""


@task.command()
@click.argument("name")
@click.argument("arguments", default="{}")
@click.option("--delay", type=float, default=0.0, help="Seconds until it may run.")
@click.option("--queue", help="Another queue than the function's.")
@click.option("--wait", type=float, help="Wait this many seconds for the result, and print it.")
def call(name: str, arguments: str, delay: float, queue: str | None, wait: float | None) -> None:
    """Call the function registered as NAME with ARGUMENTS, a JSON object by parameter name; print the run's id.

    \b
    Example:
      TALLY_TASK_MODULES=shop.tasks tally task call mail.send '{"to":"a@b.example"}' --wait 30
    """

    async def work(tasks: Tasks) -> None:
        function = deferred.registry.functions.get(name)
        if function is None:
            known = ", ".join(sorted(deferred.registry.functions)) or "none: set TALLY_TASK_MODULES"
            raise NotFound(f"no task {name!r} is registered; there is {known}")
        args, kwargs = function.codec.decode(arguments.encode())
        handle = await function.later(delay=delay, queue=queue).call(*args, **kwargs)
        if wait is None:
            click.echo(handle.id)
        else:
            print_json(await handle.result(wait))

    _with_tasks(work)


@task.command()
@click.argument("run_id")
@json_option
def status(run_id: str, as_json: bool) -> None:
    """Show a run's state, attempts, progress and error.

    \b
    Example:
      tally task status 01JABCDEF
    """
    shown = runs.view(_with_tasks(lambda tasks: tasks.handle(run_id).status()))
    if as_json:
        print_json(shown)
        return
    click.echo(f"{shown['call']} on {shown['queue']}: {shown['state']}, attempt {shown['attempt']}")
    for attempt in shown["attempts"]:
        click.echo(f"  {attempt['number']} {_time(attempt['started'])} {attempt['worker']} {attempt['outcome']}")
    if shown["progress"] is not None:
        click.echo(f"progress {msgspec.json.encode(shown['progress']).decode()}")
    if shown["error"]:
        click.echo(shown["traceback"] or shown["error"])


@task.command()
@click.argument("run_id")
@click.option("--wait", type=float, default=0.0, show_default=True, help="Seconds to wait for it.")
def result(run_id: str, wait: float) -> None:
    """Print a run's result as JSON; exit 1 with its error when it failed.

    \b
    Example:
      tally task result 01JABCDEF --wait 30
    """
    print_json(_with_tasks(lambda tasks: tasks.handle(run_id).result(wait)))


@task.command()
@click.argument("run_id")
def cancel(run_id: str) -> None:
    """Cancel a run that has not ended.

    \b
    Example:
      tally task cancel 01JABCDEF
    """
    cancelled = _with_tasks(lambda tasks: tasks.handle(run_id).cancel())
    click.echo("cancelled" if cancelled else "it had ended")


@task.group(cls=Group)
def parked() -> None:
    """Calls that could not be run, or were given up: nothing is dropped."""


@parked.command("list")
@json_option
def list_parked(as_json: bool) -> None:
    """List parked calls with the reason and the last error.

    \b
    Example:
      tally task parked list --json
    """

    async def work(tasks: Tasks) -> list[dict[str, Any]]:
        return [
            {
                "id": each.id,
                "call": each.call,
                "queue": each.queue,
                "reason": each.reason,
                "at": _time(each.at),
                "error": each.error,
            }
            async for each in tasks.parked()
        ]

    found = _with_tasks(work)
    if as_json:
        print_json(found)
        return
    for each in found:
        line = each["error"].splitlines()[-1] if each["error"] else ""
        click.echo(f"{each['id']}  {each['at']}  {each['call'] or '?'}  {each['reason']}  {line}")


@parked.command()
@click.argument("run_ids", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Replay all that are parked.")
def replay(run_ids: tuple[str, ...], every: bool) -> None:
    """Enqueue parked calls again.

    \b
    Example:
      tally task parked replay --all
    """
    if bool(run_ids) == every:
        raise InvalidInput("give ids, or --all")

    async def work(tasks: Tasks) -> int:
        chosen = [each.id async for each in tasks.parked()] if every else list(run_ids)
        for run_id in chosen:
            await tasks.replay(run_id)
        return len(chosen)

    click.echo(f"{_with_tasks(work)} replayed")


def _with_tasks(work: Callable[[Tasks], Awaitable[T]]) -> T:
    async def main() -> T:
        import_from_here()
        async with bootstrap.task_queues() as system:
            return await work(system.tasks)

    try:
        return run(main())
    except TimeoutError as error:
        raise click.ClickException(str(error)) from error


def _time(instant: int) -> str:
    return to_datetime(instant).isoformat(timespec="seconds")
