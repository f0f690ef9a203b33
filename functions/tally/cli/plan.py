"""`tally plan`: what an event needs, what it costs, and which limit binds first."""

from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from tally.cli.console import json_option, print_json
from tally.votes import prices, scale
from tally.votes.scale import Plan


@click.command()
@json_option
@click.option("--votes", type=click.IntRange(1, 10**12), required=True, help="Votes of the event, all for one poll.")
@click.option(
    "--minutes", type=click.FloatRange(0.1, 44_640), required=True, help="Minutes in which they come, evenly."
)
@click.option(
    "--region",
    type=click.Choice(sorted(prices.REGIONS)),
    default="us-central1",
    show_default=True,
    metavar="REGION",
    help="Region, for its prices and quotas.",
)
def plan(as_json: bool, votes: int, minutes: float, region: str) -> None:
    """Say what an event needs: instances, partitions, streams, workers, warm-up, cost; and which limit binds first.

    A model on list prices and default quotas. Votes come in a rush: plan for the minutes in which most of them come.

    \b
    Example:
      tally plan --votes 10000000 --minutes 5
    """
    found = scale.plan(votes, minutes, region)
    if as_json:
        shares = {bound.name: round(bound.share, 4) for bound in found.bounds}
        costs = {cost.part: round(cost.dollars, 2) for cost in found.costs}
        print_json({**asdict(found), "bounds": shares, "costs": costs, "dollars": found.dollars, "fits": found.fits})
        return
    _show(found)


def _show(found: Plan) -> None:
    needs = Table("what", "how many")
    needs.columns[1].justify = "right"
    for name, value in (
        ("votes a second", f"{found.votes_per_second:,.0f}"),
        ("function instances", f"{found.instances:,}"),
        ("partitions", f"{found.partitions:,}"),
        ("workers", f"{found.workers:,}"),
        ("streams they share", f"{found.streams:,}"),
        ("TALLY_LEDGER_MEMORY_BYTES of each", f"{found.memory:,}"),
        ("warm-up of Datastore", f"{found.warm_up_minutes} min"),
        ("last vote counted after", f"{found.drain_seconds:g} s"),
        (f"cost in {found.region}", f"${found.dollars:,.2f}"),
    ):
        needs.add_row(name, value)
    taken = Table("limit", "needed", "limit", "taken")
    for column in taken.columns[1:]:
        column.justify = "right"
    for bound in sorted(found.bounds, key=lambda bound: -bound.share):
        taken.add_row(bound.name, f"{bound.need:,.1f}", f"{bound.most:,.0f}", f"{bound.share:.1%}")
    console = Console()
    console.print(needs)
    console.print(taken)
    if not prices.REGIONS[found.region].datastore_listed:
        factor = prices.DATASTORE_AT_MOST
        console.print(f"Datastore's price in {found.region} is taken as {factor:g} times us-central1's: look it up.")
    if not found.fits:
        over = [bound.name for bound in found.bounds if bound.share > 1]
        console.print(f"It does not fit as it is: {'; '.join(over)}.")
