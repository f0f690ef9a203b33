"""`tally results`: a poll's counts, once or as they grow."""

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from tally.cli.client import Answer, Client, Unreachable, poll_path, server_options
from tally.cli.console import json_option, print_json, tables


@click.command()
@server_options
@json_option
@click.argument("poll_id")
@click.option("--watch", is_flag=True, help="Go on, with a new answer after each change, until interrupted.")
def results(url: str, token: str | None, as_json: bool, poll_id: str, watch: bool) -> None:
    """Show the counts of a poll. Where --watch is not on a terminal, each change is one line.

    \b
    Example:
      tally results lunch --watch
    """
    answers = _changes(Client(url, token), poll_path(poll_id, "/results"))
    if as_json:
        for answer in answers if watch else [next(answers)]:
            print_json(answer)
        return
    console = tables()
    if not watch:
        console.print(_table(next(answers)))
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for answer in answers:
                live.update(_table(answer), refresh=True)
    else:
        for answer in answers:
            click.echo(_line(answer))


def _changes(client: Client, path: str) -> Iterator[Any]:
    """Yield the first answer, and from then on each that differs; ask once a second, in an outage too."""
    answer = client.call("GET", path)
    while True:
        shown = answer.json()
        yield shown
        tag = answer.headers.get("ETag", "")
        answer = _next(client, path, tag, shown)


def _next(client: Client, path: str, tag: str, shown: dict[str, Any]) -> Answer:
    while True:
        time.sleep(1)
        with suppress(Unreachable):
            answer = client.call("GET", path, headers={"If-None-Match": tag})
            if answer.status not in (304, 503) and not (answer.status == 200 and _is_older(answer.json(), shown)):
                return answer


def _is_older(answer: dict[str, Any], shown: dict[str, Any]) -> bool:
    """Tell whether counts are from before those shown: a cache's, or another instance's, which read a moment sooner."""
    if answer["counts"] is None or shown["counts"] is None:
        return False
    return datetime.fromisoformat(answer["as_of"]) < datetime.fromisoformat(shown["as_of"])


def _table(answer: dict[str, Any]) -> Table:
    table = Table(title=f"{answer['poll']} ({answer['status']})")
    table.add_column("option")
    table.add_column("votes", justify="right")
    for option, count in (answer["counts"] or {}).items():
        table.add_row(option, f"{count:,}")
    table.add_section()
    table.add_row("total", "hidden until the end" if answer["total"] is None else f"{answer['total']:,}")
    return table


def _line(answer: dict[str, Any]) -> str:
    counts = (f"{option}={count}" for option, count in (answer["counts"] or {}).items())
    total = "hidden" if answer["total"] is None else answer["total"]
    return " ".join([answer["as_of"], answer["poll"], answer["status"], f"total={total}", *counts])
