"""Seeds of the queues' simulations hold. What they look for is in `queues` and `task_functions`."""

import pytest

from tests.simulation import queues, task_functions


@pytest.mark.parametrize("seed", range(10))
def test_no_task_is_lost_and_none_is_completed_by_two_leases(seed: int) -> None:
    outcome = queues.simulate(seed)
    assert outcome.wrong == ()
    assert outcome.faults > 5, "too few faults to prove anything"


@pytest.mark.parametrize("seed", range(8))
def test_every_call_ends_with_its_result_and_never_runs_twice_at_once(seed: int) -> None:
    outcome = task_functions.simulate(seed)
    assert outcome.wrong == ()
    assert outcome.faults > 5, "too few faults to prove anything"
