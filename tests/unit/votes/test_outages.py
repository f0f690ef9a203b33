"""While a service is away the worker holds, parks or lets go; afterwards all goes on without anybody's help."""

from functools import cache

import pytest

from tests.unit.votes import outage_scene as scene
from tests.unit.votes.outage import Outage, Row
from tests.unit.votes.outages import FORBIDDEN, OUTAGES

STUCK = 35  # seconds within which health must say that nothing moves
RECOVERED = 95  # a parked partition is tried again within a minute; what was let go comes again 10 s later

AWAKE = 20  # up to 5 s for a trial and 5 more for a parked partition; or 10 for a lease to end


@cache
def run(outage: Outage) -> Row:
    return scene.run(outage)


def lasting(*, worker: str = "", function: str = "", **fields: object) -> list[Outage]:
    """Return the outages of a minute and more in which these calls fail."""
    return [
        outage
        for outage in OUTAGES
        if outage.seconds >= 60
        and (not worker or worker in outage.worker)
        and (not function or function in outage.function)
        and all(getattr(outage, name) == value for name, value in fields.items())
    ]


@pytest.mark.parametrize("outage", OUTAGES, ids=str)
def test_nothing_is_lost_or_doubled_and_recovery_needs_nobody(outage: Outage) -> None:
    row = run(outage)
    assert (row.lost, row.doubled) == (0, 0)
    assert (row.dead_letters_lost, row.good_votes_dead) == (0, 0)
    assert row.accepted > scene.WARM_UP
    assert row.recovered <= RECOVERED


@pytest.mark.parametrize("outage", lasting(worker="commit"), ids=str)
def test_without_the_store_one_trial_message_is_pulled_in_five_seconds(outage: Outage) -> None:
    row = run(outage)
    assert row.store_down
    assert row.tried <= outage.seconds / 2 / 5 + 1


@pytest.mark.parametrize("outage", lasting(worker="commit"), ids=str)
def test_parked_partitions_do_not_wait_out_their_pauses_when_the_store_is_up_again(outage: Outage) -> None:
    assert run(outage).recovered <= AWAKE


@pytest.mark.parametrize("outage", [*lasting(worker="commit"), *lasting(worker="pull")], ids=str)
def test_health_says_so_when_nothing_moves_for_half_a_minute_and_until_something_does(outage: Outage) -> None:
    row = run(outage)
    assert row.unhealthy is not None
    assert 25 <= row.unhealthy <= STUCK
    assert row.bad == outage.seconds - row.unhealthy + 1


@pytest.mark.parametrize(
    "outage", [each for each in OUTAGES if not {"get", "commit"} & set(each.worker) and not each.poisoned], ids=str
)
def test_no_other_outage_parks_a_partition(outage: Outage) -> None:
    row = run(outage)
    assert (row.store_down, row.parked) == (False, ())


@pytest.mark.parametrize("outage", [each for each in OUTAGES if each.seconds == 1], ids=str)
def test_a_second_without_a_service_is_nobodys_alarm(outage: Outage) -> None:
    row = run(outage)
    assert (row.unhealthy, row.parked, row.store_down) == (None, (), False)


@pytest.mark.parametrize("outage", lasting(unreadable=True), ids=str)
def test_without_definitions_what_is_known_counts_and_what_would_be_refused_waits(outage: Outage) -> None:
    row = run(outage)
    assert row.neighbours > outage.seconds / scene.STRAY_EVERY
    assert row.let_go > 0
    assert row.unhealthy is None


@pytest.mark.parametrize("outage", lasting(poisoned=True), ids=str)
def test_neighbours_of_a_poisoned_partition_go_on(outage: Outage) -> None:
    row = run(outage)
    assert row.parked == (scene.POISONED,)
    assert row.neighbours > scene.VOTES / 2
    assert row.unhealthy is None


@pytest.mark.parametrize("outage", lasting(worker="commit", error=FORBIDDEN), ids=str)
def test_permission_lost_is_an_outage_and_no_vote_is_blamed(outage: Outage) -> None:
    row = run(outage)
    assert len(row.parked) > 1
    assert row.neighbours == 0


@pytest.mark.parametrize("outage", [*lasting(function="publish"), *lasting(function="get")], ids=str)
def test_a_function_that_cannot_publish_or_read_the_poll_answers_503(outage: Outage) -> None:
    assert run(outage).refused
