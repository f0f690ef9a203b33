import re

import msgspec
import pytest
from click.testing import CliRunner

from tally.cli import main
from tally.cli.rehearse import MOST_VOTES
from tally.votes import prices, scale
from tally.votes.poll import default_partitions


def planned(*arguments: str) -> str:
    shown = CliRunner().invoke(main, ["plan", *arguments])
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_it_says_what_does_not_fit_and_what_helps() -> None:
    shown = planned("--votes", "1000000000", "--minutes", "5")
    assert "It does not fit as it is:" in shown
    assert "- vCPU of Cloud Run in a region: 3.4 times the limit. What helps: ask Google" in shown
    assert "Each of 2 polls" in shown
    assert "tally poll create POLL OPTION… --expected-votes 500000000\n" in shown


def test_the_warm_up_is_commands_that_rehearse_takes_and_that_reach_each_partition() -> None:
    shown = planned("--votes", "1000000000", "--minutes", "5")
    found = re.search(r"The warm-up, (\d+) of these.*--votes (\d+) --minutes (\d+)", shown, re.DOTALL)
    assert found is not None
    at_once, votes, minutes = map(int, found.groups())
    assert at_once * default_partitions(votes) == 256
    assert votes <= MOST_VOTES
    assert votes / minutes / 60 >= 2 * 16 * 4  # the commits of 16 partitions by four workers


def test_it_prints_what_to_deploy_and_the_poll_to_make() -> None:
    shown = planned("--votes", "10000000", "--minutes", "5")
    deployed = scale.plan(10_000_000, 5, "us-central1").deployment
    assert deployed.tfvars in shown
    assert "The default of max_instances, 10, would not carry it." in shown
    assert "tally poll create POLL OPTION… --expected-votes 10000000\n" in shown
    assert "does not fit" not in shown
    assert "make scale" not in shown
    assert "warm-up," not in shown


def test_a_rush_that_wants_more_partitions_than_a_poll_takes_by_itself_says_how_many() -> None:
    shown = planned("--votes", "40000000", "--minutes", "1")
    assert "--expected-votes 40000000 --partitions 36\n" in shown


def test_a_peak_is_planned_for() -> None:
    shown = planned("--votes", "10000000", "--minutes", "180", "--peak", "45")
    assert "votes a second, at the peak" in shown
    assert "min_instances = 42" in shown


def test_what_the_defaults_carry_is_not_warned_of() -> None:
    assert "would not carry" not in planned("--votes", "3000000", "--minutes", "5")


def test_json_has_the_needs_the_share_of_each_limit_and_what_to_deploy() -> None:
    found = msgspec.json.decode(planned("--votes", "100000", "--minutes", "5", "--json"))
    assert (found["instances"], found["partitions"], found["workers"], found["fits"]) == (1, 16, 1, True)
    assert 0 < found["bounds"]["Datastore writes a second, cold"] < 1
    assert found["deployment"]["worker"] == {"vcpu": 1, "memory_gib": 1.0}
    assert found["ways_out"] == {}


@pytest.mark.parametrize("votes", ["0", "10.5", "many", "1000000000001", "1e13"])
def test_votes_that_no_event_has_are_refused_with_the_value_and_the_limit(votes: str) -> None:
    shown = CliRunner().invoke(main, ["plan", "--votes", votes, "--minutes", "5"])
    assert shown.exit_code == 2
    assert "in the range 1<=x<=1000000000000." in shown.output
    assert votes in shown.output or str(int(float(votes))) in shown.output


def test_votes_may_be_given_as_a_power_of_ten() -> None:
    assert planned("--votes", "1e7", "--minutes", "5") == planned("--votes", "10000000", "--minutes", "5")


@pytest.mark.parametrize(
    ("votes", "minutes", "said"),
    [
        ("1e7", "5", "If the one worker dies no vote is lost, but voters see results stand still"),
        ("7e8", "44640", "If a stream's one worker dies no vote is lost"),
    ],
)
def test_where_one_worker_is_enough_it_says_what_voters_see_when_it_dies(votes: str, minutes: str, said: str) -> None:
    assert said in planned("--votes", votes, "--minutes", minutes)


def test_where_there_are_more_workers_it_does_not() -> None:
    assert "stand still" not in planned("--votes", "1e9", "--minutes", "5")


def test_a_region_whose_price_is_not_listed_says_so_and_an_unknown_one_names_those_known() -> None:
    shown = CliRunner().invoke(main, ["plan", "--votes", "1000", "--minutes", "5", "--region", "europe-west3"])
    assert shown.exit_code == 0
    assert "Datastore's price in europe-west3 is taken as 1.5 times" in " ".join(shown.output.split())
    shown = CliRunner().invoke(main, ["plan", "--votes", "1000", "--minutes", "5", "--region", "moon-west1"])
    assert shown.exit_code == 2
    assert "moon-west1" in shown.output
    assert "europe-west1" in shown.output


@pytest.mark.parametrize("votes", ["1", "1000000000000"])
@pytest.mark.parametrize("minutes", ["0.1", "44640"])
def test_it_plans_for_the_least_and_the_most_that_may_be_asked(votes: str, minutes: str) -> None:
    for region in prices.REGIONS:
        assert scale.plan(int(votes), float(minutes), region).dollars > 0
    assert "tally poll create" in planned("--votes", votes, "--minutes", minutes)
