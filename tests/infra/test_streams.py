"""Streams in Terraform: more are added, fewer in two steps, and a deployment from before them is not touched."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tally import config
from tests.infra.policies import POLICIES, containers, environments
from tests.infra.terraform import Plan, Terraform, arguments, variables

STREAM_KINDS = {
    "google_cloud_run_v2_worker_pool",
    "google_monitoring_alert_policy",
    "google_pubsub_subscription",
    "google_pubsub_subscription_iam_member",
    "google_pubsub_topic",
    "google_pubsub_topic_iam_member",
}


@pytest.fixture(scope="module")
def two(tf: Terraform, folder: Path) -> Plan:
    return tf.plan(folder, **variables(example="evening", streams=2))


def test_two_streams_hold_every_policy(two: Plan) -> None:
    assert {name: list(policy(two)) for name, policy in POLICIES.items()} == {name: [] for name in POLICIES}


def test_functions_publish_to_topics_that_are_there_and_each_stream_has_its_worker(two: Plan) -> None:
    topics = {values["name"] for values in two.of_type("google_pubsub_topic").values()}
    subscriptions = {values["name"] for values in two.of_type("google_pubsub_subscription").values()}
    for _, environment in environments(two):
        settings = config.load(environment)
        assert settings.streams == 2
        assert {channel.topic for channel in settings.channels} == topics
        assert {channel.subscription for channel in settings.channels} == subscriptions
    workers = [{one["name"]: one["value"] for one in container["env"]} for _, container in containers(two)]
    assert sorted(config.load(environment).stream for environment in workers) == [0, 1]


def test_each_stream_that_waits_raises_an_alert(two: Plan) -> None:
    filters = [
        alert["conditions"][0]["condition_threshold"][0]["filter"]
        for alert in two.of_type("google_monitoring_alert_policy").values()
    ]
    for name in ("tally-votes", "tally-votes-1"):
        assert sum(f'subscription_id = "{name}"' in text and "oldest_unacked" in text for text in filters) == 1


def changes(tf: Terraform, folder: Path, **values: object) -> dict[str, set[str]]:
    """Return what a plan from the folder's state would change: action → addresses."""
    found: dict[str, set[str]] = defaultdict(set)
    for change in tf.plan(folder, **values).document["resource_changes"]:
        for action in change["change"]["actions"]:
            found[action].add(change["address"])
    del found["no-op"]
    return found


@pytest.mark.parametrize("example", ["smallest", "evening"])
def test_a_deployment_from_before_there_were_streams_is_not_changed(tf: Terraform, example: str) -> None:
    if tf.real:
        pytest.skip("applies only against the stand-in")
    folder = tf.copy(f"before-{example}")
    values = variables(example=example)
    assert tf.run(folder, "apply", "-no-color", "-auto-approve", *arguments(values)).returncode == 0
    state = folder / "terraform.tfstate"
    document = json.loads(state.read_text())
    for resource in document["resources"]:
        for instance in resource["instances"]:
            _without_stream(resource, instance)
    state.write_text(json.dumps(document))
    assert changes(tf, folder, **values) == {}


def _without_stream(resource: dict[str, str], instance: dict[str, object]) -> None:
    """Turn an instance's key into the one that it had: none, or a number where there was a count."""
    if instance.get("index_key") == "public/0":
        instance["index_key"] = "public"
    elif instance.get("index_key") == "0":
        instance["index_key"] = 0
        if resource["type"].startswith("google_pubsub"):
            del instance["index_key"]


def test_streams_are_added_freely_and_taken_away_in_two_steps(tf: Terraform) -> None:
    if tf.real:
        pytest.skip("applies only against the stand-in")
    folder = tf.copy("streams")

    values = variables(example="evening", streams=2)
    assert tf.run(folder, "apply", "-no-color", "-auto-approve", *arguments(values)).returncode == 0
    added = changes(tf, folder, **variables(example="evening", streams=3))
    assert not _taken(added)
    assert not any("google_pubsub" in address for address in added["update"])
    functions_first = changes(tf, folder, **variables(example="evening", streams=1, streams_kept=2))
    assert not _taken(functions_first)
    last = changes(tf, folder, **variables(example="evening", streams=1))
    gone = _taken(last)
    assert {address.split(".")[0] for address in gone} == STREAM_KINDS
    assert all('1"]' in address for address in gone)


def _taken(found: dict[str, set[str]]) -> set[str]:
    """Return what goes, but for the pauses that new grants ask for."""
    return {address for address in found["delete"] if not address.startswith("terraform_data.")}
