"""`tally plan`: what an event needs, what to deploy for it, what it costs, and which limit binds first."""

from collections.abc import Iterator
from dataclasses import asdict
from math import ceil

import click
from rich.table import Table

from tally.cli.console import Range, Whole, json_option, print_json, tables
from tally.votes import deployment, prices, scale
from tally.votes.poll import default_partitions
from tally.votes.scale import Plan

WARM_UP_VOTES_PER_COMMIT = 2


@click.command()
@json_option
@click.option("--votes", type=Whole(1, 10**12), required=True, help="Votes of the event, all for one poll.")
@click.option("--minutes", type=Range(0.1, 44_640), required=True, help="Minutes in which they come.")
@click.option(
    "--peak",
    type=Range(1, 1_000),
    default=1.0,
    show_default=True,
    help="How many times the mean rate the busiest minute has.",
)
@click.option(
    "--region",
    type=click.Choice(sorted(prices.REGIONS)),
    default="us-central1",
    show_default=True,
    metavar="REGION",
    help="Region, for its prices and quotas.",
)
def plan(as_json: bool, votes: int, minutes: float, peak: float, region: str) -> None:
    """Say what an event needs, what to deploy for it, what it costs; and which limit binds first.

    A model on list prices and default quotas. Votes come in a rush: give the minutes in which most of them come, or a
    --peak. What it says to deploy bears bursts of twice the busiest minute's rate.

    \b
    Examples:
      tally plan --votes 10000000 --minutes 5
      tally plan --votes 10000000 --minutes 180 --peak 40 --region europe-west1
    """
    found = scale.plan(votes, minutes, region, peak)
    if as_json:
        shares = {bound.name: round(bound.share, 4) for bound in found.bounds}
        costs = {cost.part: round(cost.dollars, 2) for cost in found.costs}
        ways_out = {bound.name: bound.way_out for bound in found.bounds if bound.share > 1}
        more = {"dollars": found.dollars, "fits": found.fits, "ways_out": ways_out, "tfvars": found.deployment.tfvars}
        print_json({**asdict(found), "bounds": shares, "costs": costs, **more})
        return
    console = tables()
    console.print(_needs(found))
    console.print(_limits(found))
    console.print(_costs(found))
    for line in _words(found):
        # No wrapping: lines are there to be copied.
        console.print(line, soft_wrap=True, highlight=False)


def _needs(found: Plan) -> Table:
    deployed = found.deployment
    size = deployed.worker
    table = _table("what", "how many")
    for name, value in (
        ("votes a second" if found.peak == 1 else "votes a second, at the peak", _number(found.votes_per_second)),
        ("in bursts that it bears", _number(scale.BURST * found.votes_per_second)),
        ("function instances of 1 vCPU", f"{found.instances:,}"),
        ("partitions of the poll", f"{found.partitions:,}"),
        ("streams", f"{found.streams:,}"),
        ("workers of each stream", f"{deployed.workers:,}"),
        ("each worker", f"{size.vcpu} vCPU, {size.memory_gib:g} GiB"),
        ("its ledger, of room for", f"{found.ledger_bytes:,} of {size.ledger_bytes:,} bytes"),
        ("warm-up of Datastore", f"{found.warm_up_minutes} min"),
        ("last vote counted after", f"{found.drain_seconds:g} s"),
    ):
        table.add_row(name, value)
    return table


def _limits(found: Plan) -> Table:
    table = _table("limit", "needed", "limit", "taken")
    for bound in sorted(found.bounds, key=lambda bound: -bound.share):
        table.add_row(bound.name, _number(bound.need), f"{bound.most:,.0f}", f"{bound.share:.1%}")
    return table


def _costs(found: Plan) -> Table:
    table = _table(f"cost in {found.region}", "$")
    for cost in sorted(found.costs, key=lambda cost: -cost.dollars):
        table.add_row(cost.part, f"{cost.dollars:,.2f}")
    table.add_row("all", f"{found.dollars:,.2f}", style="bold")
    return table


def _words(found: Plan) -> Iterator[str]:
    longer = f"the workers and instances run {scale.WARM_MINUTES} minutes longer"
    yield f"List prices; no free tier, load balancer, Cloud Armor; {longer}."
    whole = scale.request_log_dollars(found.votes, 1)
    kept = f"{deployment.REQUEST_LOG_SHARE:.0%} of the requests that went well"
    yield f"The log of requests keeps {kept}; all of it (request_log_share = 1) costs ${whole:,.2f}."
    if not prices.REGIONS[found.region].datastore_listed:
        factor = prices.DATASTORE_AT_MOST
        yield f"Datastore's price in {found.region} is taken as {factor:g} times us-central1's: look it up."
    if not found.fits:
        yield "\nIt does not fit as it is:"
        for bound in found.bounds:
            if bound.share > 1:
                yield f"- {bound.name}: {bound.share:,.1f} times the limit. What helps: {bound.way_out}."
    yield "\nTerraform's variables for it, in the file of `make deploy VARS=FILE`:\n"
    yield found.deployment.tfvars
    yield from _steps(found)


def _steps(found: Plan) -> Iterator[str]:
    deployed = found.deployment
    if deployed.instances > deployment.MAX_INSTANCES:
        yield f"\nThe default of max_instances, {deployment.MAX_INSTANCES}, would not carry it."
    if deployed.workers == 1:
        one = "the one worker" if deployed.streams == 1 else "a stream's one worker"
        seen = "voters see results stand still until a new one is up"
        yield f"\nIf {one} dies no vote is lost, but {seen}; with instances = 2 the other goes on."
    else:
        yield "\nWhere it is deployed already, Terraform leaves the workers' count alone:\n"
        yield f"make scale WORKERS={deployed.workers} PROJECT=…"
    if found.warm_up_minutes:
        commits_per_minute = found.writes_per_second / scale.WRITES_PER_COMMIT * 60
        at_once = ceil(found.partitions / default_partitions(None))
        votes = round(WARM_UP_VOTES_PER_COMMIT * commits_per_minute * found.warm_up_minutes / at_once)
        yield f"\nThe warm-up, {at_once} of these at once, just before:\n"
        yield f"tally rehearse --votes {votes} --minutes {found.warm_up_minutes} --url …"
    partitions = f" --partitions {found.partitions}" if found.partitions != default_partitions(found.votes) else ""
    yield "\nThe poll:\n" if found.polls == 1 else f"\nEach of {found.polls:,} polls, whose results you add up:\n"
    yield f"tally poll create POLL OPTION… --expected-votes {ceil(found.votes / found.polls)}{partitions}"


def _table(*heads: str) -> Table:
    table = Table(*heads)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
