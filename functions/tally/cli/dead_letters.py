"""`tally dead-letters`: the votes that the worker refused, and what it could not decode."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tally import bootstrap, config
from tally.cli.console import Whole, json_option, print_json, run
from tally.clock import to_datetime
from tally.votes import dead_letter
from tally.votes.dead_letter import Letter
from tally.votes.letterbox import Letterbox, Run, Selection

SHOWN_VOTES = 20
SHOWN_BYTES = 400


def _selection(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--id", "letter_id", metavar="ID", help="Only this letter."),
        click.option("--poll", help="Only letters with votes of this poll."),
        click.option("--reason", help="Only letters refused for this reason, as `list` shows it."),
    ):
        command = option(command)
    return command


def _changes(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        click.option("--all", "every", is_flag=True, help="Every letter: needed where no filter is given."),
    ):
        command = option(command)
    return _selection(command)


@click.group("dead-letters")
def dead_letters() -> None:
    """List, replay or drop the votes that the worker refused.

    While a command runs, others do not see the letters that it looks at; what it leaves is back at its end.
    """


@dead_letters.command("list")
@_selection
@click.option("--limit", default=1_000, show_default=True, type=Whole(1, 100_000), help="Letters at most.")
@json_option
def list_letters(letter_id: str | None, poll: str | None, reason: str | None, limit: int, as_json: bool) -> None:
    """Print the dead letters, one a line, and how many there are of each reason.

    \b
    Example:
      tally dead-letters list --reason poll-closed
    """
    letters = run(_read(Selection(id=letter_id, poll=poll, reason=reason), limit))
    if as_json:
        print_json([_summary(letter) for letter in letters])
        return
    for letter in letters:
        polls, votes = " ".join(letter.polls) or "?", f"{letter.votes} vote{'' if letter.votes == 1 else 's'}"
        instants = f"published {_instant(letter.published_at)}, refused {_instant(letter.died_at)}"
        click.echo(f"{letter.id:<18} {letter.reason:<26} {polls:<20} {votes:<12} {instants}")
    click.echo(_count(len(letters), sum(letter.votes for letter in letters)) + _reasons(letters))


@dead_letters.command()
@click.argument("letter_id", metavar="ID")
@json_option
def show(letter_id: str, as_json: bool) -> None:
    """Print one dead letter: why it was refused, and the votes in it.

    \b
    Example:
      tally dead-letters show 1234
    """
    letter = run(_show(letter_id))
    if as_json:
        found = list(dead_letter.votes(letter))
        print_json({**_summary(letter), "data": letter.data.decode(errors="replace"), "ballots": found})
        return
    for name, value in _summary(letter).items():
        click.echo(f"{name:<13} {value}")
    for vote in islice(dead_letter.votes(letter), SHOWN_VOTES):
        instant = "?" if vote.accepted_at is None else _instant(vote.accepted_at)
        click.echo(f"  {vote.poll}  {vote.option or '?'}  ballot {vote.ballot}  accepted {instant}")
    if letter.votes > SHOWN_VOTES:
        click.echo(f"  … {letter.votes - SHOWN_VOTES} more: --json has all")
    if not letter.replayable:
        click.echo(letter.data[:SHOWN_BYTES].decode(errors="backslashreplace"))


@dead_letters.command()
@_changes
def replay(
    letter_id: str | None, poll: str | None, reason: str | None, every: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Send refused votes to the workers again, for instance after a poll's end was moved.

    A vote keeps its ballot id and the time it was first published, so none can count twice. A vote that is refused
    again is a new dead letter. What could not be decoded cannot be replayed.

    \b
    Example:
      tally dead-letters replay --poll lunch --reason poll-closed
    """
    selection = _chosen(letter_id, poll, reason, every)
    agreed = yes or dry_run or _agreed("Replay", selection)
    result = run(_change("replayed", Letterbox.replay, selection, dry_run)) if agreed else Run()
    _print_run("replayed", result, dry_run, as_json)


@dead_letters.command()
@_changes
def drop(
    letter_id: str | None, poll: str | None, reason: str | None, every: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Delete dead letters: their votes are gone for good.

    \b
    Example:
      tally dead-letters drop --reason undecodable --dry-run
    """
    selection = _chosen(letter_id, poll, reason, every)
    agreed = yes or dry_run or _agreed("Drop", selection)
    result = run(_change("dropped", Letterbox.drop, selection, dry_run)) if agreed else Run()
    _print_run("dropped", result, dry_run, as_json)


def _chosen(letter_id: str | None, poll: str | None, reason: str | None, every: bool) -> Selection:
    selection = Selection(id=letter_id, poll=poll, reason=reason)
    if (selection == Selection()) != every:
        raise click.UsageError("give --reason, --poll or --id, or else --all")
    return selection


def _agreed(verb: str, selection: Selection) -> bool:
    """Ask, and end the command at a no; False without asking when there is no such letter."""
    if not run(_read(selection, 1)):
        return False
    given = {"reason": selection.reason, "poll": selection.poll, "id": selection.id}
    words = " ".join(f"with {name} {value!r}" for name, value in given.items() if value is not None)
    return click.confirm(f"{verb} every dead letter {words}".rstrip() + "?", abort=True, err=True)


@asynccontextmanager
async def _letterbox() -> AsyncIterator[Letterbox]:
    settings = config.load(os.environ)
    async with bootstrap.opened(settings) as backend:
        await backend.prepare()
        yield bootstrap.letterbox(settings, backend)


async def _read(selection: Selection, limit: int) -> list[Letter]:
    async with _letterbox() as box:
        return await box.read(selection, limit)


async def _show(letter_id: str) -> Letter:
    async with _letterbox() as box:
        return await box.show(letter_id)


async def _change(done: str, act: Callable[..., Any], selection: Selection, dry_run: bool) -> Run:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    async with _letterbox() as box:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("looking for dead letters")

            def progress(so_far: Run) -> None:
                bar.update(task, description=f"{_count(so_far.letters, so_far.votes)} {done}")

            result: Run = await act(box, selection, dry_run=dry_run, progress=progress)
    return result


def _print_run(done: str, result: Run, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": dry_run, **{name: getattr(result, name) for name in Run.__slots__}})
        return
    words = f"would be {done}" if dry_run else done
    click.echo(f"{_count(result.letters, result.votes)} {words}" + _by_reason(result.reasons))
    for count, why in (
        (result.unsound, "cannot be replayed: they could not be decoded"),
        (result.again, "were refused again, and stay"),
        (result.others, "are not meant by the filter"),
    ):
        if count:
            click.echo(f"{count} {why}")
    if result.more:
        click.echo("There are more: run it again.")


def _summary(letter: Letter) -> dict[str, object]:
    return {
        "id": letter.id,
        "reason": letter.reason,
        "polls": list(letter.polls),
        "votes": letter.votes,
        "published_at": _instant(letter.published_at),
        "refused_at": _instant(letter.died_at),
        "message_id": letter.message_id,
        "sha256": letter.sha256 or None,
        "replayable": letter.replayable,
        "bytes": len(letter.data),
    }


def _reasons(letters: list[Letter]) -> str:
    return _by_reason(Counter(letter.reason for letter in letters))


def _by_reason(reasons: Counter[str]) -> str:
    return f" ({', '.join(f'{count} {reason}' for reason, count in reasons.most_common())})" if reasons else ""


def _count(letters: int, votes: int) -> str:
    return f"{letters} dead letter{'' if letters == 1 else 's'} with {votes} vote{'' if votes == 1 else 's'}"


def _instant(at: int) -> str:
    return to_datetime(at).isoformat(timespec="milliseconds")
