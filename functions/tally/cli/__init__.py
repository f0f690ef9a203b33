"""The `tally` command. One module a command group; each is registered here by one line."""

import click

from tally import __version__
from tally.cli.console import Group
from tally.cli.dead_letters import dead_letters
from tally.cli.doctor import doctor
from tally.cli.plan import plan
from tally.cli.poll import poll
from tally.cli.purge import purge
from tally.cli.queue import queue
from tally.cli.recount import receipt, recount, verify
from tally.cli.rehearse import rehearse
from tally.cli.results import results
from tally.cli.serve import serve
from tally.cli.task import task
from tally.cli.vote import vote
from tally.cli.worker import worker


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="tally")
def main() -> None:
    """Count votes exactly, and run task queues, on Google Cloud or on this machine.

    Settings come from TALLY_* variables; commands that talk to a server take --url or TALLY_URL.
    """


main.add_command(dead_letters)
main.add_command(doctor)
main.add_command(plan)
main.add_command(poll)
main.add_command(purge)
main.add_command(queue)
main.add_command(receipt)
main.add_command(recount)
main.add_command(rehearse)
main.add_command(results)
main.add_command(serve)
main.add_command(task)
main.add_command(verify)
main.add_command(vote)
main.add_command(worker)
