"""What comes before what: APIs first, workers before functions; and what a redeploy leaves alone."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.infra.terraform import Terraform, arguments, variables

# Resource type → the API that makes it.
API = {
    "google_artifact_registry": "artifactregistry",
    "google_cloud_run": "run",
    "google_cloud_scheduler": "cloudscheduler",
    "google_cloud_tasks": "cloudtasks",
    "google_cloudfunctions2": "cloudfunctions",
    "google_compute": "compute",
    "google_firestore": "firestore",
    "google_logging": "logging",
    "google_monitoring": "monitoring",
    "google_project_iam": "cloudresourcemanager",
    "google_pubsub": "pubsub",
    "google_secret_manager": "secretmanager",
    "google_service_account": "iam",
    "google_storage": "storage",
}
# What one deploy of new code may change: the rest stays as it is.
REDEPLOYED = {"google_cloudfunctions2_function", "google_cloud_run_v2_worker_pool", "google_storage_bucket_object"}


@pytest.fixture(scope="session")
def graph(tf: Terraform, folder: Path) -> dict[str, set[str]]:
    """Resource → the resources that it waits for."""
    done = tf.run(folder, "graph")
    assert done.returncode == 0, done.stderr
    edges: dict[str, set[str]] = {}
    for node in re.findall(r'^\s+"([\w.]+)" \[', done.stdout, re.MULTILINE):
        edges[node] = set()
    for waits, first in re.findall(r'^\s+"([\w.]+)" -> "([\w.]+)"', done.stdout, re.MULTILINE):
        edges.setdefault(waits, set()).add(first)
    return edges


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found, todo = set[str](), [start]
    while todo:
        for first in graph.get(todo.pop(), set()) - found:
            found.add(first)
            todo.append(first)
    return found


def test_every_resource_waits_for_the_apis(graph: dict[str, set[str]]) -> None:
    assert len(graph) > 40
    late = [
        name
        for name in graph
        if name.startswith("google_")
        and name != "google_project_service.this"
        and not {"google_project_service.this", "terraform_data.services_settled"} <= reached(graph, name)
    ]
    assert late == []


@pytest.mark.parametrize("example", ["smallest", "national"])
def test_the_api_of_every_resource_is_enabled(tf: Terraform, folder: Path, example: str) -> None:
    plan = tf.plan(folder, **variables(example=example))
    enabled = {values["service"] for values in plan.of_type("google_project_service").values()}
    for resource in plan.resources:
        if resource["type"].startswith("google_") and resource["type"] != "google_project_service":
            (api,) = [api for prefix, api in API.items() if resource["type"].startswith(prefix)]
            assert f"{api}.googleapis.com" in enabled, resource["address"]


@pytest.mark.parametrize(
    "first",
    [
        "google_cloud_run_v2_job.worker",
        "google_cloud_run_v2_worker_pool.worker",
        "google_pubsub_subscription.votes",
        "terraform_data.grants_settled",
    ],
)
def test_functions_come_after_what_they_need(graph: dict[str, set[str]], first: str) -> None:
    assert first in reached(graph, "google_cloudfunctions2_function.this")


def test_parts_start_only_when_every_grant_that_is_not_on_them_is_made(graph: dict[str, set[str]]) -> None:
    parts = {"google_cloudfunctions2_function.this", "google_cloud_run_v2_worker_pool.worker"}
    grants = {name for name in graph if "_iam_member" in name and not reached(graph, name) & parts}
    grants -= {name for name in grants if name.startswith("google_cloud_run_v2_job")}
    assert grants <= reached(graph, "google_cloud_run_v2_worker_pool.worker")
    assert len(grants) >= 9


def test_a_redeploy_changes_only_what_runs(tf: Terraform, tmp_path: Path) -> None:
    """New source, new image, another count of workers set by hand: no topic, subscription or database is touched."""
    if tf.real:
        pytest.skip("applies only against the stand-in")
    folder = tf.copy("redeploy")
    values = variables(example="evening")
    assert tf.run(folder, "apply", "-no-color", "-auto-approve", *arguments(values)).returncode == 0
    _scale(folder / "terraform.tfstate", instances=3)
    source = tmp_path / "other.zip"
    shutil.copy(values["source_archive"], source)
    with source.open("ab") as file:
        file.write(b"changed")
    changed = values | {"source_archive": str(source), "worker_image": values["worker_image"][:-1] + "1"}
    actions = {
        change["address"]: change["change"]["actions"]
        for change in tf.plan(folder, **changed).document["resource_changes"]
        if change["change"]["actions"] != ["no-op"]
    }
    assert {address.split(".")[0] for address in actions} == REDEPLOYED
    deleted = {address for address, action in actions.items() if "delete" in action}
    assert deleted <= {"google_storage_bucket_object.source"}
    pool = next(
        change["change"]["after"]
        for change in tf.plan(folder, **changed).document["resource_changes"]
        if change["type"] == "google_cloud_run_v2_worker_pool"
    )
    assert pool["scaling"][0]["manual_instance_count"] == 3


def _scale(state: Path, *, instances: int) -> None:
    document = json.loads(state.read_text())
    (pool,) = [one for one in document["resources"] if one["type"] == "google_cloud_run_v2_worker_pool"]
    pool["instances"][0]["attributes"]["scaling"][0]["manual_instance_count"] = instances
    state.write_text(json.dumps(document))
