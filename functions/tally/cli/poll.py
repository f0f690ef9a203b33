"""`tally poll …`: make, show, list, change, close and delete polls."""

from typing import Any

import click
from rich.table import Table

from tally.cli.client import Client, poll_path, server_options
from tally.cli.console import Group, Whole, json_option, print_json, tables

_INSTANT = "RFC 3339, like 2027-01-31T20:00:00+01:00"


@click.group(cls=Group)
def poll() -> None:
    """Make, show, list, change, close and delete polls."""


@poll.command()
@server_options
@json_option
@click.argument("poll_id")
@click.argument("options", nargs=-1, required=True)
@click.option("--title", help="Title; the id if it is not given.")
@click.option("--opens-at", help=f"When it opens: {_INSTANT}.")
@click.option("--closes-at", help=f"When it ends: {_INSTANT}.")
@click.option("--expected-votes", type=Whole(1), help="How many votes to be ready for.")
@click.option("--partitions", type=Whole(1), help="Partitions of its ledger; from the expected votes if not given.")
@click.option("--voters", type=click.Choice(["one-ballot", "open"]), help="One ballot a voter, or as many as come.")
@click.option("--revote", type=click.Choice(["keep", "replace"]), help="Which vote of a voter counts: first or last.")
@click.option("--results", type=click.Choice(["live", "after-close"]), help="When the results show.")
def create(url: str, token: str | None, as_json: bool, poll_id: str, options: tuple[str, ...], **fields: Any) -> None:
    """Make a poll with these OPTIONS, each as ID or ID=LABEL.

    \b
    Example:
      tally poll create lunch pizza=Pizza salad=Salad --title "What shall we eat?"
    """
    definition = {"id": poll_id, "title": poll_id, "options": [_option(option) for option in options]}
    definition.update({name: value for name, value in fields.items() if value is not None})
    _print(Client(url, token).call("POST", "/v1/polls", definition).json(), as_json)


@poll.command()
@server_options
@json_option
@click.argument("poll_id")
def show(url: str, token: str | None, as_json: bool, poll_id: str) -> None:
    """Show a poll.

    \b
    Example:
      tally poll show lunch
    """
    _print(_get(Client(url, token), poll_id), as_json)


@poll.command("list")
@server_options
@json_option
def list_(url: str, token: str | None, as_json: bool) -> None:
    """List all polls, by id.

    \b
    Example:
      tally poll list --json
    """
    client = Client(url, token)
    polls: list[Any] = []
    path = "/v1/polls"
    while path:
        page = client.call("GET", path).json()
        polls += page["polls"]
        path = f"/v1/polls?cursor={page['cursor']}" if page["cursor"] else ""
    if as_json:
        print_json({"polls": polls})
        return
    table = Table("poll", "status", "closes", "title")
    for item in polls:
        table.add_row(item["id"], item["status"], item["closes_at"] or "", item["title"])
    tables().print(table)


@poll.command()
@server_options
@json_option
@click.argument("poll_id")
@click.option("--title", help="A new title.")
@click.option("--opens-at", help=f"When it opens: {_INSTANT}.")
@click.option("--closes-at", help=f"When it ends: {_INSTANT}.")
@click.option("--add", multiple=True, metavar="ID[=LABEL]", help="An option to add; may be repeated.")
@click.option("--withdraw", multiple=True, metavar="ID", help="An option to withdraw; may be repeated.")
def patch(
    url: str,
    token: str | None,
    as_json: bool,
    poll_id: str,
    add: tuple[str, ...],
    withdraw: tuple[str, ...],
    **fields: Any,
) -> None:
    """Change a poll. What would change how votes are counted cannot be changed.

    \b
    Example:
      tally poll patch lunch --add soup=Soup --withdraw salad
    """
    client = Client(url, token)
    changes = {name: value for name, value in fields.items() if value is not None}
    if add:
        changes["add_options"] = [_option(option) for option in add]
    if withdraw:
        changes["withdraw_options"] = withdraw
    if not changes:
        raise click.UsageError("nothing to change is given")
    changes["revision"] = _get(client, poll_id)["revision"]
    _print(client.call("PATCH", poll_path(poll_id), changes).json(), as_json)


@poll.command()
@server_options
@json_option
@click.argument("poll_id")
def close(url: str, token: str | None, as_json: bool, poll_id: str) -> None:
    """End a poll in five seconds from now. Votes taken until then count, and show in its results seconds later.

    \b
    Example:
      tally poll close lunch
    """
    _print(Client(url, token).call("POST", poll_path(poll_id, "/close")).json(), as_json)


@poll.command()
@server_options
@json_option
@click.argument("poll_id")
@click.confirmation_option(prompt="Its id can never be used again. Delete the poll?")
def delete(url: str, token: str | None, as_json: bool, poll_id: str) -> None:
    """Delete a poll, in five seconds from now and for ever.

    \b
    Example:
      tally poll delete lunch --yes
    """
    _print(Client(url, token).call("DELETE", poll_path(poll_id)).json(), as_json)


def _get(client: Client, poll_id: str) -> Any:
    return client.call("GET", poll_path(poll_id)).json()


def _option(text: str) -> dict[str, str]:
    option_id, equals, label = text.partition("=")
    return {"id": option_id, "label": label} if equals else {"id": option_id}


def _print(shown: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    table = Table(show_header=False)
    for name, value in shown.items():
        table.add_row(name, _cell(value))
    tables().print(table)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(f"{option['id']}  {option['label']}" for option in value)
    return "" if value is None else str(value)
