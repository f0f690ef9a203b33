"""Each example's plan holds every policy; each planted mistake is caught by Terraform or by the policy it breaks."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.infra.policies import POLICIES
from tests.infra.terraform import Plan, PlanRefused, Terraform, variables


@pytest.mark.parametrize("policy", POLICIES)
def test_the_plan_holds_the_policy(plan: Plan, policy: str) -> None:
    assert list(POLICIES[policy](plan)) == []


def test_the_endpoint_is_open_only_when_asked(tf: Terraform, folder: Path) -> None:
    plan = tf.plan(folder, **variables(public=False))
    assert not [resource["address"] for resource in plan.resources if resource["values"].get("member") == "allUsers"]


class Mistake(NamedTuple):
    """`caught` is the policy that finds it, or words of Terraform's refusal."""

    file: str
    old: str
    new: str
    caught: str
    example: str = "national"


SUBSCRIBER = 'role         = "roles/pubsub.subscriber"'
MISTAKES = {
    "an argument that does not exist": Mistake(
        "votes.tf", "ack_deadline_seconds ", "ack_deadline_second ", "Unsupported argument"
    ),
    "an ack deadline past Pub/Sub's": Mistake(
        "votes.tf", "ack_deadline_seconds       = 10", "ack_deadline_seconds = 601", "range"
    ),
    "a database type that does not exist": Mistake("database.tf", '"DATASTORE_MODE"', '"DATASTORE"', "to be one of"),
    "a resource that is not declared": Mistake(
        "worker.tf",
        "google_service_account.worker.email",
        "google_service_account.workers.email",
        "undeclared resource",
    ),
    "a worker without an image": Mistake("worker.tf", "image = var.worker_image", "", "Missing required argument"),
    "a subscription that expires": Mistake("votes.tf", 'ttl = ""', 'ttl = "2678400s"', "subscriptions_last"),
    "a topic that keeps nothing": Mistake(
        "votes.tf",
        'message_retention_duration = "${var.retention_days * 86400}s" # a',
        "# a",
        "subscriptions_last",
    ),
    "Pub/Sub's own dead-lettering": Mistake(
        "votes.tf",
        "  retry_policy {",
        "  dead_letter_policy {\n    dead_letter_topic = google_pubsub_topic.dead_letters.id\n  }\n  retry_policy {",
        "votes_are_not_dead_lettered_by_pubsub",
    ),
    "a dead-letter topic that nobody reads": Mistake(
        "dead_letters.tf",
        "google_pubsub_topic.dead_letters.id",
        'google_pubsub_topic.votes["0"].id',
        "every_topic_has_a_subscription",
    ),
    "a wider role": Mistake("votes.tf", SUBSCRIBER, SUBSCRIBER.replace("subscriber", "editor"), "grants_are_listed"),
    "a basic role": Mistake("source.tf", '"roles/logging.logWriter"', '"roles/editor"', "no_basic_roles"),
    "a grant on the whole project": Mistake(
        "worker.tf",
        "  condition {\n    title      = local.database_condition.title\n"
        "    expression = local.database_condition.expression\n  }\n",
        "",
        "grants_are_listed",
    ),
    "a grant that is not in the list": Mistake("votes.tf", "    if f.publishes_votes\n", "", "grants_are_listed"),
    "an admin function open to all": Mistake(
        "functions.tf", "for_each = var.admin_members", 'for_each = toset(["allUsers"])', "only_public_is_open"
    ),
    "tasks that anyone may send": Mistake(
        "tasks.tf",
        "  member   = google_service_account.tasks.member",
        '  member   = "allAuthenticatedUsers"',
        "only_the_queues_run_tasks",
    ),
    "a function as the default account": Mistake(
        "functions.tf",
        "service_account_email            = google_service_account.function[each.key].email",
        'service_account_email = "1-compute@developer.gserviceaccount.com"',
        "own_accounts",
    ),
    "a worker as another part's account": Mistake(
        "worker.tf",
        "service_account = google_service_account.worker.email",
        'service_account = google_service_account.function["public"].email',
        "own_accounts",
    ),
    "a build as the default account": Mistake(
        "functions.tf", "    service_account   = google_service_account.builder.id\n", "", "builds_run_as_the_builder"
    ),
    "a key in the environment": Mistake(
        "functions.tf",
        "TALLY_BALLOT_KEY  = var.ballot_key",
        f'TALLY_BALLOT_KEY = "{"5f" * 32}"',
        "no_secret_in_the_environment",
    ),
    "a probe that restarts workers in an outage": Mistake(
        "worker.tf", 'path = "/live"', 'path = "/health"', "only_live_restarts_a_worker"
    ),
    "one request at a time": Mistake(
        "functions.tf", "concurrency = 80", "concurrency = 1", "functions_serve_many_at_a_time"
    ),
    "a sync server": Mistake(
        "functions.tf", 'FUNCTION_USE_ASGI = "true"', 'FUNCTION_USE_WSGI = "true"', "functions_serve_many_at_a_time"
    ),
    "a way round the load balancer": Mistake(
        "functions.tf",
        '"ALLOW_ALL" : "ALLOW_INTERNAL_AND_GCLB"',
        '"ALLOW_ALL" : "ALLOW_ALL"',
        "behind_the_load_balancer_only",
    ),
    "a limit by a header of the client's": Mistake(
        "load_balancer.tf", '= "IP"', '= "XFF_IP"', "addresses_are_throttled_by_what_google_saw"
    ),
    "a database that may be dropped": Mistake(
        "database.tf",
        'deletion_policy                   = var.deletion_protection ? "PREVENT" : "DELETE"',
        'deletion_policy = "ABANDON"',
        "what_holds_votes_is_protected",
    ),
    "a subscription that may be replaced": Mistake(
        "votes.tf",
        '  deletion_policy            = local.stream_protected[each.key] ? "PREVENT" : "DELETE"\n\n  expiration_policy',
        "\n  expiration_policy",
        "what_holds_votes_is_protected",
    ),
    "a bucket that can be opened": Mistake(
        "source.tf", '  public_access_prevention    = "enforced"\n', "", "buckets_are_closed"
    ),
    "a job beside the pool": Mistake(
        "worker.tf",
        "for_each            = local.worker_is_job ? local.streams : {}",
        "for_each = local.streams",
        "one_worker_whose_cpu_is_always_on",
    ),
    "an alert without words": Mistake(
        "monitoring.tf", "content   = each.value.help", 'content   = "!"', "alerts_say_what_to_do"
    ),
    "failures that are not logged": Mistake(
        "request_log.tf",
        '      "httpRequest.status < 400",\n',
        "",
        "only_requests_that_went_well_leave_the_log",
    ),
    "other services' requests that are not logged": Mistake(
        "request_log.tf",
        '      "resource.labels.service_name = \\"${local.public_name}\\"",\n',
        "",
        "only_requests_that_went_well_leave_the_log",
    ),
    "images that pile up": Mistake("registry.tf", '"DELETE"', '"KEEP"', "old_images_are_cleaned_up"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_caught(tf: Terraform, tmp_path: Path, name: str) -> None:
    mistake = MISTAKES[name]
    folder = tf.copy(tmp_path.name)
    file = folder / mistake.file
    text = file.read_text()
    assert mistake.old in text, f"{mistake.file} no longer says {mistake.old!r}"
    file.write_text(text.replace(mistake.old, mistake.new, 1))
    try:
        plan = tf.plan(folder, **variables(example=mistake.example))
    except PlanRefused as refused:
        assert mistake.caught in str(refused)
    else:
        assert mistake.caught in POLICIES, f"Terraform took it, and was to say {mistake.caught!r}"
        assert list(POLICIES[mistake.caught](plan))
