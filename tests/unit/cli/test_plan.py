import msgspec
from click.testing import CliRunner

from tally.cli import main


def test_it_says_what_does_not_fit() -> None:
    shown = CliRunner().invoke(main, ["plan", "--votes", "1000000000", "--minutes", "5"])
    assert shown.exit_code == 0
    assert "does not fit" in shown.output
    assert "workers of one stream" in shown.output


def test_json_has_the_needs_and_the_share_of_each_limit() -> None:
    shown = CliRunner().invoke(main, ["plan", "--votes", "100000", "--minutes", "5", "--json"])
    found = msgspec.json.decode(shown.output)
    assert (found["instances"], found["partitions"], found["workers"], found["fits"]) == (1, 16, 1, True)
    assert 0 < found["bounds"]["workers of one stream"] < 1


def test_no_votes_are_an_error() -> None:
    assert CliRunner().invoke(main, ["plan", "--votes", "0", "--minutes", "5"]).exit_code == 2
