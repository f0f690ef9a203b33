"""The queues of Cloud Tasks are as the variables say."""

from pathlib import Path

from tests.infra.terraform import Terraform, variables


def test_a_queue_has_the_rate_and_the_concurrency_that_it_was_given(tf: Terraform, folder: Path) -> None:
    queues = {"mail": {"dispatches_per_second": 50, "concurrent": 7}, "reports": {}}
    plan = tf.plan(folder, **variables(push_queues=queues))
    limits = {values["name"]: values["rate_limits"][0] for values in plan.of_type("google_cloud_tasks_queue").values()}
    found = {
        name: (each["max_dispatches_per_second"], each["max_concurrent_dispatches"]) for name, each in limits.items()
    }
    assert found == {"mail": (50, 7), "reports": (100, 100)}
