import asyncio

import click
import pytest
from click.testing import CliRunner

from tally.cli import main
from tally.cli.console import Group, Whole, print_json, run
from tally.errors import ConfigError


@click.group(cls=Group)
def group() -> None: ...


@group.command()
def fails() -> None:
    raise ConfigError("TALLY_BACKEND='x': want auto")


def test_an_error_raised_on_purpose_is_one_line_and_exit_code_1() -> None:
    answer = CliRunner().invoke(group, ["fails"])
    assert answer.exit_code == 1
    assert answer.output == "Error: TALLY_BACKEND='x': want auto (config)\n"


@group.command()
def waits() -> None:
    raise KeyboardInterrupt


def test_an_interruption_is_exit_code_130() -> None:
    answer = CliRunner().invoke(group, ["waits"])
    assert (answer.exit_code, answer.output) == (130, "")


def test_help_shows_for_both_flags_and_a_wrong_command_exits_2() -> None:
    for flag in ("-h", "--help"):
        assert CliRunner().invoke(main, [flag]).exit_code == 0
    assert CliRunner().invoke(main, ["no-such"]).exit_code == 2


@pytest.mark.parametrize(
    ("command", "option", "bounds"),
    [("plan", "--minutes", "0.1<=x<=44640"), ("plan", "--peak", "1<=x<=1000"), ("rehearse", "--wait", "0<=x<=3600")],
)
def test_a_number_that_is_none_is_refused_with_the_bounds(command: str, option: str, bounds: str) -> None:
    answer = CliRunner().invoke(main, [command, option, "nan"])
    assert answer.exit_code == 2
    assert f"Invalid value for '{option}': nan is not in the range {bounds}." in answer.output


@pytest.mark.parametrize(("given", "found"), [("7", 7), ("1e3", 1000), ("2.5E2", 250), ("1_000", 1000), (7, 7)])
def test_a_whole_number_may_be_written_as_people_write_it(given: str | int, found: int) -> None:
    assert Whole(1, 1_000).convert(given, None, None) == found


@pytest.mark.parametrize("given", ["", "x", "1.5", "nan", "inf", "-inf", "1e999999999", "1e-999999999", "1" * 5_000])
def test_what_is_no_whole_number_is_refused_with_the_bounds(given: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        Whole(1, 1_000).convert(given, None, None)
    assert refused.value.message == f"{given!r} is not a whole number in the range 1<=x<=1000."


def test_run_returns_the_result_and_print_json_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> dict[str, int]:
        await asyncio.sleep(0)
        return {"a": 1}

    print_json(run(work()))
    assert capsys.readouterr().out == '{\n  "a": 1\n}\n'
