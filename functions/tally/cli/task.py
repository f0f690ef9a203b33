"""`tally task`: calls of task functions: make one, look at it, cancel it; list, replay, drop what is parked."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import msgspec

from tally import bootstrap
from tally.cli.console import Group, import_from_here, json_option, print_json, run
from tally.clock import to_datetime
from tally.errors import NotFound
from tally.tasks import deferred
from tally.tasks import run as runs
from tally.tasks.client import Tasks
from tally.tasks.parked import Parked
from tally.tasks.parking import Parking
from tally.tasks.system import TaskSystem

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


@task.command("run")
@click.argument("run_id")
def run_now(run_id: str) -> None:
    """Start a call that waits for its time or its next attempt now.

    \b
    Example:
      tally task run 01JABCDEF
    """
    if not _with_tasks(lambda tasks: tasks.run_now(run_id)):
        raise NotFound(f"run {run_id} does not wait")
    click.echo("due now")


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


@task.command()
def sweep() -> None:
    """Add what transactions left in the outbox, hand over gathered items, and remove records whose time is over.

    Workers with queues and `tally serve` do so by themselves; run it now and then where there are neither.

    \b
    Example:
      tally task sweep
    """

    async def work(system: TaskSystem) -> tuple[int, int]:
        await system.gatherer().sweep()
        return await system.outbox().sweep(), await system.tasks.runs.sweep()

    added, removed = _with_system(work)
    click.echo(f"{added} tasks added, {removed} records removed")


@task.group(cls=Group)
def parked() -> None:
    """What could not be run, was given up, or was taken by no queue: nothing is dropped by itself."""


@parked.command("list")
@json_option
def list_parked(as_json: bool) -> None:
    """List what is parked, with the reason and the last error. An id `outbox:…` is a task from a transaction.

    \b
    Example:
      tally task parked list --json
    """

    async def work(system: TaskSystem) -> list[Parked]:
        return [each async for each in system.parking().all()]

    found = _with_system(work)
    if as_json:
        shown = ("id", "call", "queue", "reason", "error")
        print_json([{**{name: getattr(each, name) for name in shown}, "at": _time(each.at)} for each in found])
        return
    for each in found:
        line = each.error.splitlines()[-1] if each.error else ""
        click.echo(f"{each.id}  {_time(each.at)}  {each.call or '?'}  {each.queue}  {each.reason}  {line}")
    click.echo(f"{len(found)} parked")


@parked.command()
@click.argument("ids", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that is parked.")
def replay(ids: tuple[str, ...], every: bool) -> None:
    """Enqueue again what is parked.

    \b
    Example:
      tally task parked replay --all
    """

    async def act(parking: Parking, parked_id: str) -> bool:
        if not (taken := await parking.replay(parked_id)):
            click.echo(f"{parked_id}: not taken", err=True)
        return taken

    click.echo(f"{_with_each(ids, every, act)} replayed")


@parked.command()
@click.argument("ids", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that is parked.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop(ids: tuple[str, ...], every: bool, yes: bool) -> None:
    """Delete for good what is parked.

    \b
    Example:
      tally task parked drop 01JABCDEF
    """
    if every and not yes:
        click.confirm("Delete all that is parked?", abort=True, err=True)

    async def act(parking: Parking, parked_id: str) -> bool:
        await parking.drop(parked_id)
        return True

    click.echo(f"{_with_each(ids, every, act)} dropped")


def _with_each(ids: tuple[str, ...], every: bool, act: Callable[[Parking, str], Awaitable[bool]]) -> int:
    """Act on what is parked, by ids or all; return how many times it went well."""
    if bool(ids) == every:
        raise click.UsageError("give ids, or else --all")

    async def work(system: TaskSystem) -> int:
        parking = system.parking()
        chosen = [each.id async for each in parking.all()] if every else ids
        return sum([await act(parking, parked_id) for parked_id in chosen])

    return _with_system(work)


def _with_tasks(work: Callable[[Tasks], Awaitable[T]]) -> T:
    return _with_system(lambda system: work(system.tasks))


def _with_system(work: Callable[[TaskSystem], Awaitable[T]]) -> T:
    async def main() -> T:
        import_from_here()
        async with bootstrap.task_queues() as system:
            return await work(system)

    try:
        return run(main())
    except TimeoutError as error:
        raise click.ClickException(str(error)) from error


def _time(instant: int) -> str:
    return to_datetime(instant).isoformat(timespec="seconds")
