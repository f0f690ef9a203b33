"""The pool that runs the tasks of pull queues: as safe as the rest, and absent unless it is asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra import costs, deploy
from tally.cli.worker import worker
from tally.votes import prices
from tests.infra.policies import POLICIES, TASK_POOL, environments
from tests.infra.settings import expected
from tests.infra.terraform import SOURCE, Plan, PlanRefused, Terraform, variables

POOL = {"queues": {"high": 4, "low": 1}, "strict": True, "concurrency": "2:50"}


@pytest.fixture(scope="session")
def pool_plan(tf: Terraform, folder: Path) -> Plan:
    return tf.plan(folder, **variables(example="evening", task_worker=POOL, task_modules=["shop.tasks"]))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_pool_holds_the_policy(pool_plan: Plan, policy: str) -> None:
    assert list(POLICIES[policy](pool_plan)) == []


def test_there_is_none_unless_asked(plan_of: Callable[[str], Plan]) -> None:
    assert not [one["address"] for one in plan_of("evening").resources if "task_worker" in one["address"]]


def test_its_command_line_is_one_that_the_worker_takes(pool_plan: Plan) -> None:
    _, *line = _container(pool_plan)["args"]
    given = worker.make_context("worker", line).params
    assert (given["queues"], given["strict"], given["concurrency"]) == (("high=4", "low=1"), True, "2:50")
    assert given["port"] == _container(pool_plan)["liveness_probe"][0]["http_get"][0]["port"]


def test_it_has_the_settings_of_what_runs_tasks(pool_plan: Plan) -> None:
    environment = dict(environments(pool_plan))[TASK_POOL]
    assert set(environment) == expected("task_worker")
    assert environment["TALLY_TASK_MODULES"] == "shop.tasks"


def test_it_may_add_to_push_queues_and_read_no_votes(pool_plan: Plan) -> None:
    pool = pool_plan.of_type("google_cloud_run_v2_worker_pool")[TASK_POOL]
    member = f"serviceAccount:{pool['template'][0]['service_account']}"
    grants = {
        one["address"] for one in pool_plan.resources if "_iam_" in one["type"] and one["values"]["member"] == member
    }
    assert grants == {
        'google_cloud_tasks_queue_iam_member.enqueuer["mail/task_worker"]',
        'google_cloud_tasks_queue_iam_member.enqueuer["reports/task_worker"]',
        "google_project_iam_member.task_worker_database[0]",
        'google_service_account_iam_member.sends_as_tasks["task_worker"]',
    }


def test_its_trouble_is_counted_and_alerted(pool_plan: Plan) -> None:
    counted = pool_plan.of_type("google_logging_metric")
    watched = [
        values["filter"] for values in counted.values() if 'worker_pool_name = "tally-task-worker"' in values["filter"]
    ]
    assert [action in "".join(watched) for action in ("queue-behind", "task-parked", "task-dead")] == [True] * 3
    alerts = pool_plan.of_type("google_monitoring_alert_policy")
    assert {f'google_monitoring_alert_policy.this["{name}"]' for name in ("pulled_late", "pulled_parked")} <= set(
        alerts
    )


def test_a_destroy_lifts_its_protection(pool_plan: Plan) -> None:
    assert TASK_POOL.removesuffix("[0]") in deploy.PROTECTED


def test_the_readme_says_what_it_costs(pool_plan: Plan) -> None:
    size = _container(pool_plan)["resources"][0]["limits"]
    assert size == {"cpu": "1", "memory": "512Mi"}
    month = costs.MONTH_SECONDS * (prices.POOL_VCPU + 0.5 * prices.POOL_GIB) + 2 * prices.ALERT
    assert f"${month:.2f} a month" in (SOURCE / "README.md").read_text()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"queues": {}}, "Name at least one queue"),
        ({"queues": {"a": 0}}, "Name at least one queue"),
        ({"queues": {"a/b": 1}}, "Name at least one queue"),
        ({"queues": {"mail": 1}}, "A queue is pushed or pulled"),
        ({"instances": 101}, "instances is a whole number"),
        ({"memory_gib": 5}, "memory_gib from 0.5 to 4"),
        ({"concurrency": "many"}, "concurrency is MIN:MAX"),
    ],
)
def test_what_cannot_work_is_refused(tf: Terraform, folder: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanRefused, match=words):
        tf.plan(folder, **variables(task_worker={**POOL, **changed}))


def _container(plan: Plan) -> dict[str, Any]:
    container: dict[str, Any] = plan.of_type("google_cloud_run_v2_worker_pool")[TASK_POOL]["template"][0]["containers"][
        0
    ]
    return container
