"""`tally doctor`: what is wrong with this set-up, and the command that mends it."""

import os
import sys

import click

from tally import bootstrap
from tally.cli.console import json_option, print_json, run
from tally.finding import Finding

_MARKS = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}


@click.command()
@click.option("--read-only", is_flag=True, help="Do not try the store's guard, which writes and deletes an entity.")
@json_option
def doctor(read_only: bool, as_json: bool) -> None:
    """Look at settings, keys, hosts, credentials, topics, the store and the clock; exit 1 if something is wrong.

    \b
    Example:
      tally doctor --json
    """
    findings = run(bootstrap.checkup(os.environ, bootstrap.World(), read_only=read_only))
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            _print(finding)
    sys.exit(1 if any(finding.level == "wrong" for finding in findings) else 0)


def _print(finding: Finding) -> None:
    click.echo(f"{_MARKS[finding.level]} {finding.check:<13} {finding.says}")
    if finding.mend:
        click.echo(f"{'':20}{finding.mend}")
