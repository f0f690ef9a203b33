"""What every plan of the configuration must hold: each policy is a function from a plan to the violations it finds."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.infra.terraform import Plan

ACCOUNT, TOPIC, SUBSCRIPTION = "google_service_account", "google_pubsub_topic", "google_pubsub_subscription"
TASK_POOL = "google_cloud_run_v2_worker_pool.task_worker[0]"
DAY = 86_400
# Every grant there may be: address → role; those on stream 0 are on the others too. Project-wide ones are bound by a
# condition, but for logging, which has none.
GRANTS = {
    'google_artifact_registry_repository_iam_member.builder_writes["functions"]': "roles/artifactregistry.writer",
    'google_artifact_registry_repository_iam_member.builder_writes["images"]': "roles/artifactregistry.writer",
    'google_cloud_run_v2_job_iam_member.scheduler["0"]': "roles/run.invoker",
    "google_cloud_run_v2_service_iam_member.public[0]": "roles/run.invoker",
    "google_cloud_run_v2_service_iam_member.run_task": "roles/run.invoker",
    'google_cloud_tasks_queue_iam_member.enqueuer["mail/run_task"]': "roles/cloudtasks.enqueuer",
    'google_cloud_tasks_queue_iam_member.enqueuer["mail/task_worker"]': "roles/cloudtasks.enqueuer",
    'google_cloud_tasks_queue_iam_member.enqueuer["reports/run_task"]': "roles/cloudtasks.enqueuer",
    'google_cloud_tasks_queue_iam_member.enqueuer["reports/task_worker"]': "roles/cloudtasks.enqueuer",
    "google_project_iam_member.builder_logs": "roles/logging.logWriter",
    "google_project_iam_member.builder_reads_copies": "roles/storage.objectViewer",
    'google_project_iam_member.function_database["admin"]': "roles/datastore.user",
    'google_project_iam_member.function_database["public"]': "roles/datastore.viewer",
    'google_project_iam_member.function_database["run_task"]': "roles/datastore.user",
    "google_project_iam_member.task_worker_database[0]": "roles/datastore.user",
    "google_project_iam_member.worker_database": "roles/datastore.user",
    'google_pubsub_subscription_iam_member.votes_worker["0"]': "roles/pubsub.subscriber",
    "google_pubsub_topic_iam_member.dead_letters_worker": "roles/pubsub.publisher",
    'google_pubsub_topic_iam_member.votes_publisher["public/0"]': "roles/pubsub.publisher",
    'google_secret_manager_secret_iam_member.ballot_keys_reader["public"]': "roles/secretmanager.secretAccessor",
    'google_service_account_iam_member.sends_as_tasks["run_task"]': "roles/iam.serviceAccountUser",
    'google_service_account_iam_member.sends_as_tasks["task_worker"]': "roles/iam.serviceAccountUser",
    "google_storage_bucket_iam_member.builder_reads_source": "roles/storage.objectViewer",
}
WITHOUT_CONDITION = {"google_project_iam_member.builder_logs"}
OPEN = {"allUsers": {"google_cloud_run_v2_service_iam_member.public[0]"}, "allAuthenticatedUsers": set[str]()}
BASIC = re.compile(r"roles/(owner|editor|viewer|browser)|.*[aA]dmin")
# Names that sound secret, and the only ones of them that may be set, with what they may hold.
SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL")
NOT_SECRET = {"TALLY_BALLOT_KEY": re.compile(r"[1-9]\d*"), "TALLY_BALLOT_KEYS": re.compile(r"/[a-z/-]+")}

Violations = Iterator[str]


def grants_are_listed(plan: Plan) -> Violations:
    for resource in plan.resources:
        address, values = resource["address"], resource["values"]
        if "_iam_" not in resource["type"]:
            continue
        listed = GRANTS.get(re.sub(r'\d+"]$', '0"]', address))
        if not resource["type"].endswith("_iam_member"):
            yield f"{address} takes grants of others away"
        elif listed is None:
            yield f"{address} is not in the list of grants"
        elif values["role"] != listed:
            yield f"{address} grants {values['role']}, not {listed}"
        elif address.startswith("google_project_iam") and address not in WITHOUT_CONDITION and not values["condition"]:
            yield f"{address} is for the whole project"


def no_basic_roles(plan: Plan) -> Violations:
    for resource in plan.resources:
        if BASIC.fullmatch(str(resource["values"].get("role", ""))):
            yield f"{resource['address']} grants {resource['values']['role']}"


def no_account_keys(plan: Plan) -> Violations:
    yield from plan.of_type("google_service_account_key")


def only_public_is_open(plan: Plan) -> Violations:
    asked = plan.document["variables"]["public"]["value"]
    for resource in plan.resources:
        member = resource["values"].get("member")
        if member in OPEN and not (asked and resource["address"] in OPEN[member]):
            yield f"{resource['address']} is open to {member}"


def own_accounts(plan: Plan) -> Violations:
    """Each part runs, and is built, as an account of its own; the workers of all streams are one part."""
    ours = {values["email"] for values in plan.of_type(ACCOUNT).values()}
    users: dict[str, str] = {}
    for address, email in _accounts(plan):
        part = re.sub(r'\["\d+"\]$', "", address)
        if email not in ours:
            yield f"{address} runs as {email}"
        elif users.setdefault(email, part) != part:
            yield f"{address} and {users[email]} share {email}"


def _accounts(plan: Plan) -> Iterator[tuple[str, str]]:
    for address, values in plan.of_type("google_cloudfunctions2_function").items():
        yield address, values["service_config"][0]["service_account_email"]
    for address, values in plan.of_type("google_cloud_run_v2_worker_pool").items():
        yield address, values["template"][0]["service_account"]
    for address, values in plan.of_type("google_cloud_run_v2_job").items():
        yield address, values["template"][0]["template"][0]["service_account"]


def builds_run_as_the_builder(plan: Plan) -> Violations:
    for resource in plan.document["configuration"]["root_module"]["resources"]:
        if resource["type"] == "google_cloudfunctions2_function":
            account = resource["expressions"]["build_config"][0].get("service_account", {})
            if "google_service_account.builder" not in account.get("references", []):
                yield f"{resource['address']} is not built by the builder account"


def subscriptions_last(plan: Plan) -> Violations:
    """Never expire, keep 7 to 31 days; their topics keep as long, so that a subscription made late misses nothing."""
    keeps = {address: values["message_retention_duration"] for address, values in plan.of_type(TOPIC).items()}
    for address, values in plan.of_type(SUBSCRIPTION).items():
        if values["expiration_policy"] != [{"ttl": ""}]:
            yield f"{address} expires"
        kept = values["message_retention_duration"] or "0s"
        if not 7 * DAY <= int(kept[:-1]) <= 31 * DAY:
            yield f"{address} keeps messages {kept}"
        topic = _topic_of(plan, address)
        if keeps.get(topic) != kept:
            yield f"{topic} keeps messages {keeps.get(topic)}, its subscription {kept}"


def votes_are_not_dead_lettered_by_pubsub(plan: Plan) -> Violations:
    for address, values in plan.of_type(SUBSCRIPTION).items():
        if values["dead_letter_policy"]:
            yield f"{address} takes good votes away after an outage"
        if values["push_config"] or values["filter"]:
            yield f"{address} does not bring every vote to the worker"


def every_topic_has_a_subscription(plan: Plan) -> Violations:
    """A topic without one drops what is published to it."""
    read = {_topic_of(plan, address) for address in plan.of_type(SUBSCRIPTION)}
    for address in plan.of_type(TOPIC):
        if address not in read:
            yield f"{address} has no subscription"


def _topic_of(plan: Plan, address: str) -> str:
    """Return the address of a subscription's topic: that of the same stream, where it has one for each."""
    name, bracket, stream = address.partition("[")
    for resource in plan.document["configuration"]["root_module"]["resources"]:
        if resource["address"] == name:
            references: list[str] = resource["expressions"]["topic"]["references"]
            (topic,) = (found for found in references if re.fullmatch(rf"{TOPIC}\.\w+", found))
            return topic + bracket + stream if "each.key" in references else topic
    raise LookupError(address)


def one_worker_whose_cpu_is_always_on(plan: Plan) -> Violations:
    """A pool or a job: a service has CPU only while it answers a request, and starves a pull worker."""
    workers = {*plan.of_type("google_cloud_run_v2_worker_pool"), *plan.of_type("google_cloud_run_v2_job")} - {TASK_POOL}
    kinds = {address.partition("[")[0] for address in workers}
    if len(kinds) != 1:
        yield f"there are {len(kinds)} kinds of worker"
    yield from plan.of_type("google_cloud_run_v2_service")


def only_live_restarts_a_worker(plan: Plan) -> Violations:
    for address, values in plan.of_type("google_cloud_run_v2_worker_pool").items():
        container = values["template"][0]["containers"][0]
        paths = [get["path"] for probe in container["liveness_probe"] for get in probe["http_get"]]
        if paths != ["/live"] or container["startup_probe"]:
            yield f"{address} is probed at {paths}"


def images_by_digest(plan: Plan) -> Violations:
    for address, values in plan.of_type("google_cloud_run_v2_worker_pool").items():
        image = values["template"][0]["containers"][0]["image"]
        if "@sha256:" not in image:
            yield f"{address} runs {image}"


def what_holds_votes_is_protected(plan: Plan) -> Violations:
    wanted: dict[str, dict[str, object]] = {
        "google_firestore_database": {
            "delete_protection_state": "DELETE_PROTECTION_ENABLED",
            "deletion_policy": "PREVENT",
            "point_in_time_recovery_enablement": "POINT_IN_TIME_RECOVERY_ENABLED",
            "type": "DATASTORE_MODE",
        },
        TOPIC: {"deletion_policy": "PREVENT"},
        SUBSCRIPTION: {"deletion_policy": "PREVENT"},
        "google_secret_manager_secret": {"deletion_protection": True},
        "google_cloud_run_v2_worker_pool": {"deletion_protection": True},
        "google_cloud_run_v2_job": {"deletion_protection": True},
    }
    for kind, protections in wanted.items():
        for address, values in plan.of_type(kind).items():
            for name, value in protections.items():
                if values.get(name) != value:
                    yield f"{address}: {name} is {values.get(name)}, not {value}"


def environments(plan: Plan) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (address, environment) of every part that runs our code."""
    for address, values in plan.of_type("google_cloudfunctions2_function").items():
        yield address, values["service_config"][0]["environment_variables"]
    for address, container in containers(plan):
        yield address, {one["name"]: one["value"] for one in container["env"]}


def containers(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (address, container) of each worker, be it a pool or a job."""
    for address, values in plan.of_type("google_cloud_run_v2_worker_pool").items():
        yield address, values["template"][0]["containers"][0]
    for address, values in plan.of_type("google_cloud_run_v2_job").items():
        yield address, values["template"][0]["template"][0]["containers"][0]


def no_secret_in_the_environment(plan: Plan) -> Violations:
    for address, environment in environments(plan):
        for name, value in environment.items():
            harmless = NOT_SECRET.get(name)
            if SECRET_NAME.search(name) and not (harmless and harmless.fullmatch(value)):
                yield f"{address}: {name} holds a secret"
    yield from plan.of_type("google_secret_manager_secret_version")  # its value would be in the state


def functions_serve_many_at_a_time(plan: Plan) -> Violations:
    for address, values in plan.of_type("google_cloudfunctions2_function").items():
        config = values["service_config"][0]
        if config["max_instance_request_concurrency"] < 20 or float(config["available_cpu"]) < 1:
            yield f"{address} serves {config['max_instance_request_concurrency']} on {config['available_cpu']} vCPU"
        if config["environment_variables"].get("FUNCTION_USE_ASGI") != "true":
            yield f"{address} runs under a sync server"
        if values["build_config"][0]["runtime"] != "python313":
            yield f"{address} runs on {values['build_config'][0]['runtime']}"


def behind_the_load_balancer_only(plan: Plan) -> Violations:
    """With a load balancer, nobody goes round its throttle."""
    if plan.of_type("google_compute_security_policy"):
        public = plan.of_type("google_cloudfunctions2_function")['google_cloudfunctions2_function.this["public"]']
        if public["service_config"][0]["ingress_settings"] != "ALLOW_INTERNAL_AND_GCLB":
            yield "the public function is reached without the load balancer"


def addresses_are_throttled_by_what_google_saw(plan: Plan) -> Violations:
    for address, values in plan.of_type("google_compute_security_policy").items():
        limits = [rule for rule in values["rule"] if rule["rate_limit_options"]]
        if not limits:
            yield f"{address} limits nobody"
        for rule in limits:
            options = rule["rate_limit_options"][0]
            if options["enforce_on_key"] != "IP" or options["exceed_action"] != "deny(429)":
                yield f"{address} counts by {options['enforce_on_key']} and answers {options['exceed_action']}"
            if not options["ban_threshold"]:
                yield f"{address} bans nobody"


def only_the_queues_run_tasks(plan: Plan) -> Violations:
    """The function trusts that Cloud Run checked the token: so nobody but the queues' account may be let in."""
    (tasks,) = (values["member"] for address, values in plan.of_type(ACCOUNT).items() if address.endswith(".tasks"))
    for address, values in plan.of_type("google_cloud_run_v2_service_iam_member").items():
        if "run-task" in values["name"] and values["member"] != tasks:
            yield f"{address} lets {values['member']} run tasks"


def buckets_are_closed(plan: Plan) -> Violations:
    for address, values in plan.of_type("google_storage_bucket").items():
        if values.get("public_access_prevention") != "enforced" or not values.get("uniform_bucket_level_access"):
            yield f"{address} can be opened object by object"


def old_images_are_cleaned_up(plan: Plan) -> Violations:
    for address, values in plan.of_type("google_artifact_registry_repository").items():
        if {policy["action"] for policy in values["cleanup_policies"]} != {"KEEP", "DELETE"}:
            yield f"{address} grows for ever"


def alerts_say_what_to_do(plan: Plan) -> Violations:
    for address, values in plan.of_type("google_monitoring_alert_policy").items():
        if not values["documentation"] or len(values["documentation"][0]["content"]) < 80:
            yield f"{address} does not say what to do"


def only_requests_that_went_well_leave_the_log(plan: Plan) -> Violations:
    """Of the votes function's, and of the log that Cloud Run writes: never a failure, nor a line of our code."""
    narrow = {
        'logName = "projects/tally-demo/logs/run.googleapis.com%2Frequests"',
        'resource.type = "cloud_run_revision"',
        'resource.labels.service_name = "tally-public"',
        "httpRequest.status >= 200",
        "httpRequest.status < 400",
    }
    for address, values in plan.of_type("google_logging_project_exclusion").items():
        clauses = values["filter"].split(" AND ")
        for missing in narrow - set(clauses):
            yield f"{address} leaves out more than {missing}"
        for other in (clause for clause in clauses if clause not in narrow and not clause.startswith("sample(")):
            yield f"{address} says {other}"


POLICIES: dict[str, Callable[[Plan], Violations]] = {
    policy.__name__: policy
    for policy in (
        grants_are_listed,
        no_basic_roles,
        no_account_keys,
        only_public_is_open,
        own_accounts,
        builds_run_as_the_builder,
        subscriptions_last,
        votes_are_not_dead_lettered_by_pubsub,
        every_topic_has_a_subscription,
        one_worker_whose_cpu_is_always_on,
        only_live_restarts_a_worker,
        images_by_digest,
        what_holds_votes_is_protected,
        no_secret_in_the_environment,
        functions_serve_many_at_a_time,
        behind_the_load_balancer_only,
        addresses_are_throttled_by_what_google_saw,
        only_the_queues_run_tasks,
        buckets_are_closed,
        old_images_are_cleaned_up,
        alerts_say_what_to_do,
        only_requests_that_went_well_leave_the_log,
    )
}
