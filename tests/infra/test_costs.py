"""The README's cost tables are those that the model prints, for the sizes that the examples deploy."""

from collections.abc import Callable

import pytest

from infra import costs
from tests.infra.policies import containers
from tests.infra.terraform import EXAMPLES, SOURCE, Plan

PUSH_ALERTS = 1  # of the push queues that the plans here have and the model has not


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_readme_shows_the_table(example: str) -> None:
    assert costs.table(costs.LOADS[example]) in (SOURCE / "README.md").read_text()


def test_the_model_has_the_sizes_that_are_deployed(plan_of: Callable[[str], Plan]) -> None:
    for example, load in costs.LOADS.items():
        plan = plan_of(example)
        public = plan.of_type("google_cloudfunctions2_function")['google_cloudfunctions2_function.this["public"]']
        assert public["service_config"][0]["min_instance_count"] == load.min_instances
        for _, container in containers(plan):
            size = container["resources"][0]["limits"]
            assert (float(size["cpu"]), size["memory"]) == (load.worker_vcpu, f"{load.worker_gib * 1024:g}Mi")
        pools = plan.of_type("google_cloud_run_v2_worker_pool").values()
        assert sum(pool["scaling"][0]["manual_instance_count"] for pool in pools) == load.workers
        assert bool(plan.of_type("google_compute_security_policy")) == load.load_balancer
        assert len(plan.of_type("google_monitoring_alert_policy")) == load.alerts + PUSH_ALERTS
        assert bool(plan.of_type("google_cloud_scheduler_job")) == bool(load.runs)


def test_the_smallest_costs_cents_when_idle() -> None:
    """What is there all month without a vote, alerts apart."""
    idle = [line for line in costs.lines(costs.LOADS["smallest"]) if line.part in ("Worker job", "Schedule")]
    assert 0 < sum(line.dollars for line in idle) < 1
