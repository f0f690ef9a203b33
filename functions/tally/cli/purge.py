"""`tally purge`: remove the ledger of a poll deleted a month ago."""

import os

import click

from tally import bootstrap, config
from tally.cli.console import run


@click.command()
@click.argument("poll_id")
def purge(poll_id: str) -> None:
    """Delete the ledger of a poll that was deleted at least 31 days ago. Its id stays taken for ever.

    \b
    Example:
      tally purge lunch
    """
    entities = run(bootstrap.purge(config.load(os.environ), poll_id))
    click.echo(f"purged {poll_id}: {entities} entities")
