"""`tally vote`: cast one vote, and send it again until it is accepted."""

import secrets

import click

from tally.cli.client import Client, insist, poll_path, server_options
from tally.cli.console import json_option, print_json


@click.command()
@server_options
@json_option
@click.argument("poll_id")
@click.argument("option")
@click.option("--voter", help="The voter's id, in a poll that takes one ballot a voter.")
@click.option("--id", "vote_id", help="The vote's own id in an open poll, 16 bytes or more; a random one if not given.")
@click.option("--give-up", default=60.0, show_default=True, help="Seconds after which to stop sending it again.")
def vote(
    url: str,
    token: str | None,
    as_json: bool,
    poll_id: str,
    option: str,
    voter: str | None,
    vote_id: str | None,
    give_up: float,
) -> None:
    """Vote for OPTION. The vote is sent again, as the same ballot, until it is accepted.

    \b
    Example:
      tally vote lunch pizza --voter ann
    """
    if voter is not None and vote_id is not None:
        raise click.UsageError("--voter is for polls that take one ballot a voter, --id for open ones")
    identity = {"voter": voter} if voter is not None else {"id": vote_id or secrets.token_hex(16)}

    def trouble(problem: str) -> None:
        click.echo(f"{problem}. Trying again for {give_up:g} s (--give-up).", err=True)

    sent = {"option": option, **identity}
    answer = insist(Client(url, token), poll_path(poll_id, "/votes"), sent, give_up, trouble).json()
    if as_json:
        print_json(answer)
    else:
        click.echo(f"accepted: ballot {answer['ballot']}")
