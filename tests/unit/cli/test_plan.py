import msgspec
from click.testing import CliRunner

from tally.cli import main


def test_it_says_what_does_not_fit() -> None:
    shown = CliRunner().invoke(main, ["plan", "--votes", "1000000000", "--minutes", "5"])
    assert shown.exit_code == 0
    assert "does not fit" in shown.output
    assert "function instances in a region; votes of one poll" in " ".join(shown.output.split())


def test_json_has_the_needs_and_the_share_of_each_limit() -> None:
    shown = CliRunner().invoke(main, ["plan", "--votes", "100000", "--minutes", "5", "--json"])
    found = msgspec.json.decode(shown.output)
    assert (found["instances"], found["partitions"], found["workers"], found["fits"]) == (1, 16, 1, True)
    assert 0 < found["bounds"]["Datastore writes a second, without a warm-up"] < 1


def test_no_votes_are_an_error() -> None:
    assert CliRunner().invoke(main, ["plan", "--votes", "0", "--minutes", "5"]).exit_code == 2


def test_a_region_whose_price_is_not_listed_says_so_and_an_unknown_one_names_those_known() -> None:
    shown = CliRunner().invoke(main, ["plan", "--votes", "1000", "--minutes", "5", "--region", "europe-west3"])
    assert shown.exit_code == 0
    assert "Datastore's price in europe-west3 is taken as 1.5 times" in " ".join(shown.output.split())
    shown = CliRunner().invoke(main, ["plan", "--votes", "1000", "--minutes", "5", "--region", "moon-west1"])
    assert shown.exit_code == 2
    assert "moon-west1" in shown.output
    assert "europe-west1" in shown.output
