"""`python -m tally.cli`: the command where the package is not installed, as in the worker's image."""

from tally.cli import main

main(prog_name="tally")
