"""`tally recount`, `verify` and `receipt`: count from the ledger, check an export, prove that a ballot is in."""

import os
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tally import bootstrap, config
from tally.cli.console import json_option, print_json, run, tables
from tally.errors import InvalidInput
from tally.votes import certificate, export
from tally.votes.certificate import Certificate, Receipt
from tally.votes.poll import Poll
from tally.votes.recount import Recount


@click.command("recount")
@json_option
@click.argument("poll_id")
@click.option("--export", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write the records too.")
def recount(as_json: bool, poll_id: str, target: Path | None) -> None:
    """Count a poll again from its ledger alone; exit code 1 if its shards say otherwise.

    Prints the certificate. --export writes the live records, as CSV if the file ends in .csv, else as JSON lines.

    \b
    Example:
      tally recount lunch --export lunch.jsonl
    """
    poll, counted = _recount(poll_id)
    for difference in counted.differences:
        click.echo(f"differs: {difference}", err=True)
    made = certificate.certify(poll.id, _options(poll), counted.records)
    if target is not None:
        try:
            export.write(target, made, counted.records)
        except OSError as error:
            raise InvalidInput(f"{target} cannot be written: {error.strerror}") from error
    _show(made, as_json)
    sys.exit(1 if counted.differences else 0)


@click.command()
@json_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def verify(as_json: bool, file: Path) -> None:
    """Recompute an export's totals, hash and Merkle root from the file alone; exit code 1 if any differs.

    \b
    Example:
      tally verify lunch.jsonl
    """
    stated, records = export.read(file)
    made = certificate.certify(stated.poll, stated.options, records)
    for name in Certificate.__struct_fields__:
        if getattr(stated, name) != getattr(made, name):
            click.echo(f"differs: {name}: the file says {getattr(stated, name)}, it is {getattr(made, name)}", err=True)
    _show(made, as_json)
    sys.exit(0 if stated == made else 1)


@click.command()
@click.argument("poll_id", required=False)
@click.option("--ballot", help="The ballot, as the vote's 202 gave it.")
@click.option("--check", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Check a receipt instead.")
@click.option("--root", help="With --check: the root of the certificate that you trust.")
def receipt(poll_id: str | None, ballot: str | None, check: Path | None, root: str | None) -> None:
    """Print the proof that a ballot is in a poll's ledger, or check one (exit code 1 if it does not hold).

    \b
    Examples:
      tally receipt lunch --ballot 646faef93c54ede1009ee37e9e91cbf7 > receipt.json
      tally receipt --check receipt.json --root 5df6e0e2…
    """
    if check is not None:
        _check(check, root)
    elif poll_id is None or ballot is None:
        raise click.UsageError("give a poll and --ballot, or --check FILE")
    else:
        poll, counted = _recount(poll_id)
        print_json(certificate.receipt(poll.id, _options(poll), counted.records, _ballot(ballot)))


def _check(file: Path, root: str | None) -> None:
    try:
        proof = msgspec.json.decode(file.read_bytes(), type=Receipt)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file}: no receipt: {error}") from error
    if not certificate.holds(proof):
        raise InvalidInput(f"{file}: the proof does not lead to its root", code="receipt-broken")
    if root is not None and root.lower() != proof.root:
        raise InvalidInput(f"{file}: its root is {proof.root}, not {root}", code="receipt-of-another-root")
    # The tree proves the option's number; which name it has, and of which poll, only the certificate says.
    click.echo(
        f"ballot {proof.ballot} is in the ledger with root {proof.root}, for option number {proof.option_number}"
        f" (by the receipt: {proof.option} of poll {proof.poll})"
    )
    if root is None:
        click.echo("the root was not compared: give that of the poll's certificate as --root", err=True)


def _ballot(text: str) -> bytes:
    try:
        ballot = bytes.fromhex(text)
    except ValueError:
        ballot = b""
    if len(ballot) != 16:
        raise InvalidInput(f"ballot {text!r}: want 32 hexadecimal digits")
    return ballot


def _recount(poll_id: str) -> tuple[Poll, Recount]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("partitions", total=None)
        return run(
            bootstrap.recount(config.load(os.environ), poll_id, lambda of: progress.update(bar, total=of, advance=1))
        )


def _options(poll: Poll) -> list[str]:
    return [option.id for option in poll.options]


def _show(made: Certificate, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    table = Table("option", title=made.poll)
    table.add_column("votes", justify="right")
    for option, count in made.counts.items():
        table.add_row(option, f"{count:,}")
    table.add_row("total", f"{made.ballots:,}")
    tables().print(table)
    click.echo(f"sha256 {made.sha256}\nroot   {made.root}")
