"""What every command shares: running async code, printing data, and one clear line with an exit code for an error.

Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted.
"""

import asyncio
import sys
from collections.abc import Coroutine
from decimal import Decimal, InvalidOperation
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console

from tally.errors import TallyError

T = TypeVar("T")
INTERRUPTED = 130
DIGITS_AT_MOST = 18

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


class Range(click.FloatRange):
    """Numbers within bounds. Click's own takes NaN as well, which no comparison refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


class Whole(click.IntRange):
    """Whole numbers within bounds, which may be written as 1e7 too. Click's own names no bounds for what is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = Decimal(value)
        except InvalidOperation:
            number = Decimal("nan")
        # The digits first: 1e999999 as an int would fill the memory for nothing.
        if not number.is_finite() or number.adjusted() >= DIGITS_AT_MOST or number != number.to_integral_value():
            self.fail(f"{value!r} is not a whole number in the range {self._describe_range()}.", param, ctx)
        whole: int = super().convert(int(number), param, ctx)
        return whole


class Group(click.Group):
    """A command group in which an error that Tally raises on purpose is one line on stderr and exit code 1, and an
    interruption exit code 130."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TallyError as error:
            raise click.ClickException(f"{error.message} ({error.code})") from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run async work on a fast event loop until it is done."""
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


def import_from_here() -> None:
    """Let the modules of TALLY_TASK_MODULES be found in the working directory, as `python -m` finds them."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def print_json(value: object) -> None:
    """Print one value as indented JSON on stdout."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def tables() -> Console:
    """Return where tables are printed: what people named, [/etc] or :cat:, is shown as it is."""
    return Console(markup=False, emoji=False)
