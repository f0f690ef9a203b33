"""Code and infrastructure agree: settings, targets, limits."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra import deploy
from tally import config, limits
from tally.tasks import system
from tally.votes import deployment, keyring, scale
from tests.infra.policies import TASK_POOL, containers, environments
from tests.infra.settings import expected
from tests.infra.terraform import ROOT, SOURCE, Plan, Terraform, targets, variables

FUNCTION = "google_cloudfunctions2_function"
# What others than tally.config read: the Functions Framework.
NOT_OURS = {"FUNCTION_USE_ASGI"}


def part(address: str) -> str:
    """Return `public`, `admin`, … for a function, `worker` for the pool or job that counts, `task_worker`."""
    found = re.fullmatch(r'google_cloudfunctions2_function\.this\["(\w+)"\]', address)
    return found[1] if found else "task_worker" if address == TASK_POOL else "worker"


def test_every_setting_that_is_read_is_set_and_no_other(plan: Plan) -> None:
    parts = dict(environments(plan))
    assert {part(address) for address in parts} >= {"admin", "public", "worker"}
    for address, environment in parts.items():
        assert set(environment) - NOT_OURS == expected(part(address)), address


def test_the_settings_load_and_name_what_is_made(plan: Plan) -> None:
    def names(kind: str) -> set[str]:
        return {values["name"] for values in plan.of_type(kind).values()}

    for address, environment in environments(plan):
        settings = config.load({**environment, "K_SERVICE": "x"})
        assert settings.backend == "cloud", address
        assert settings.project == "tally-demo"
        assert {channel.topic for channel in settings.channels} == names("google_pubsub_topic")
        assert {channel.subscription for channel in settings.channels} == names("google_pubsub_subscription")
        assert settings.topic != settings.dead_letter_topic
        assert {settings.database} == names("google_firestore_database")


def test_the_ballot_keys_are_files_named_by_version_where_public_looks_for_them(plan: Plan) -> None:
    mounted = {}
    for address, values in plan.of_type(FUNCTION).items():
        config_of = values["service_config"][0]
        environment = config_of["environment_variables"]
        for volume in config_of["secret_volumes"]:
            mounted[part(address)] = volume
            assert volume["mount_path"] == environment["TALLY_BALLOT_KEYS"]
            for version in volume["versions"]:
                assert keyring.check_version(version["path"]) == version["version"]
            assert environment["TALLY_BALLOT_KEY"] in {version["path"] for version in volume["versions"]}
    assert set(mounted) == {"public"}


def test_the_targets_of_main_are_the_functions(plan: Plan) -> None:
    functions = plan.of_type(FUNCTION).values()
    assert {values["build_config"][0]["entry_point"] for values in functions} == targets()


def logged() -> set[str]:
    """Return the actions that the code logs: strings in the first argument of `event(…)`."""
    found = set()
    for path in (ROOT / "functions").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).split(".")[-1] == "event":
                words = ast.walk(node.args[0])
                found |= {
                    word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)
                }
    return found


def test_each_event_that_is_counted_is_logged_by_the_code(plan: Plan) -> None:
    metrics = plan.of_type("google_logging_metric")
    watched = {action for values in metrics.values() for action in re.findall(r'"([a-z-]+)"', values["filter"])}
    watched -= {"tally-worker", "tally-public", "tally-run-task", "tally-task-worker"}
    assert len(watched) >= len(metrics)
    assert watched <= logged()


def test_the_dashboard_shows_every_count(plan: Plan) -> None:
    (dashboard,) = plan.of_type("google_monitoring_dashboard").values()
    shown = json.loads(dashboard["dashboard_json"])
    filters = json.dumps(shown["mosaicLayout"]["tiles"])
    for values in plan.of_type("google_logging_metric").values():
        assert f"user/{values['name']}" in filters
    places = {(tile["xPos"], tile["yPos"]) for tile in shown["mosaicLayout"]["tiles"]}
    assert len(places) == len(shown["mosaicLayout"]["tiles"])


def test_the_ledger_fits_the_workers_memory(plan: Plan) -> None:
    """What a worker keeps, half as much again while it loads, and what it holds of messages, are in its container."""
    for _, container in containers(plan):
        environment = {one["name"]: one["value"] for one in container["env"]}
        ledger = config.load(environment).ledger_memory_bytes
        memory = int(container["resources"][0]["limits"]["memory"].removesuffix("Mi")) * 2**20
        assert ledger > limits.HELD_BYTES
        assert limits.HELD_BYTES + 1.5 * ledger < memory


def test_the_national_example_keeps_all_its_ballots_in_memory(plan_of: Callable[[str], Plan]) -> None:
    ((_, container),) = containers(plan_of("national"))
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert config.load(environment).ledger_memory_bytes >= 60_000_000 * 40


def test_the_sizes_that_a_plan_takes_are_those_of_terraform() -> None:
    """Needs no Terraform: the numbers stand in its files."""
    worker, text = ((SOURCE / name).read_text() for name in ("worker.tf", "variables.tf"))
    rule = f"(var.worker.memory_gib - {deployment.CODE_GIB}) * {deployment.LEDGER_SHARE} * 1024 * 1024 * 1024"
    assert rule in worker
    largest = deployment.LARGEST_WORKER
    assert f"contains({list(deployment.VCPUS)}, var.worker.cpu)" in text
    most = f"<= {deployment.GIB_PER_VCPU} * var.worker.cpu && var.worker.memory_gib <= {largest.memory_gib:g}"
    assert most in text
    assert f"var.worker.instances <= {scale.WORKERS_PER_STREAM} " in text
    assert f"var.streams <= {limits.STREAMS} " in text
    assert f"var.public_size.concurrency <= {deployment.CONCURRENCY_AT_MOST}\n" in text
    public, pool = _defaults(text, "public_size"), _defaults(text, "worker")
    assert int(public["max_instances"]) == deployment.MAX_INSTANCES
    assert int(public["concurrency"]) == deployment.CONCURRENCY
    assert public["memory"] == f'"{deployment.FUNCTION_GIB * 1024:g}Mi"'
    assert float(pool["memory_gib"]) == deployment.WORKER_GIB
    assert f"  default     = {deployment.REQUEST_LOG_SHARE} #" in _variable(text, "request_log_share")
    a_ballot = round(scale.LEDGER_BYTES_PER_VOTE / deployment.LEDGER_SHARE)
    assert f"Memory: {deployment.CODE_GIB} GiB and {a_ballot} bytes a ballot" in text


def test_the_readme_says_what_the_defaults_carry() -> None:
    rate = deployment.MAX_INSTANCES * scale.VOTES_PER_INSTANCE_SECOND
    ballots = deployment.worker_size(0).ledger_bytes // scale.LEDGER_BYTES_PER_VOTE // 10**6
    said = f"The defaults carry {rate:,} single votes a second and {ballots} million ballots"
    assert said in " ".join((SOURCE / "README.md").read_text().split())


def _defaults(text: str, name: str) -> dict[str, str]:
    """Return the defaults of an object variable's fields, as they are written."""
    return dict(re.findall(r"(\w+) += optional\(\w+, ([^)]+)\)", _variable(text, name)))


def _variable(text: str, name: str) -> str:
    return text.split(f'variable "{name}"')[1].split("\nvariable ")[0]


@pytest.mark.parametrize("votes", [1_000, 10**9])
def test_what_a_plan_says_to_deploy_is_what_terraform_deploys(tf: Terraform, folder: Path, votes: int) -> None:
    planned = scale.plan(votes, 5, "us-central1").deployment
    (folder / "examples" / "event.tfvars").write_text(planned.tfvars)
    plan = tf.plan(folder, **variables(example="event"))
    pools = list(plan.of_type("google_cloud_run_v2_worker_pool").values())
    assert len(pools) == planned.streams
    for (_, container), pool in zip(containers(plan), pools, strict=True):
        environment = {one["name"]: one["value"] for one in container["env"]}
        assert config.load(environment).ledger_memory_bytes == planned.worker.ledger_bytes
        assert pool["scaling"][0]["manual_instance_count"] == planned.workers
    (exclusion,) = plan.of_type("google_logging_project_exclusion").values()
    assert f"sample(insertId, {1 - deployment.REQUEST_LOG_SHARE:.4f})" in exclusion["filter"]
    public = plan.of_type(FUNCTION)[f'{FUNCTION}.this["public"]']["service_config"][0]
    assert public["min_instance_count"] == planned.instances
    assert public["max_instance_count"] == planned.max_instances
    assert public["max_instance_request_concurrency"] == planned.concurrency


def test_the_limits_of_terraform_are_those_of_the_code(plan: Plan) -> None:
    votes = plan.of_type("google_pubsub_subscription")['google_pubsub_subscription.votes["0"]']
    assert votes["ack_deadline_seconds"] == limits.ACK_DEADLINE_SECONDS
    functions = {part(at): value["service_config"][0] for at, value in plan.of_type(FUNCTION).items()}
    assert functions["run_task"]["timeout_seconds"] == limits.DISPATCH_SECONDS
    assert functions["run_task"]["max_instance_request_concurrency"] == system.PUSHED_AT_ONCE
    assert functions["public"]["max_instance_request_concurrency"] * limits.VOTES_PER_REQUEST > limits.WAITING_VOTES
    text = (SOURCE / "variables.tf").read_text()
    assert f"var.worker.instances <= {deploy.MAX_WORKERS}" in text
    assert f"{{1,{limits.QUEUE_NAME}}}" in text


def test_tasks_are_sent_to_the_function_as_the_account_that_it_lets_in(plan: Plan) -> None:
    environment = dict(environments(plan))[f'{FUNCTION}.this["run_task"]']
    settings = config.load(environment)
    name = plan.of_type(FUNCTION)[f'{FUNCTION}.this["run_task"]']["name"]
    assert urlsplit(settings.run_task_url).netloc == f"{name}-123456789012.{settings.location}.run.app"
    assert settings.run_task_iam
    assert {queue["name"] for queue in plan.of_type("google_cloud_tasks_queue").values()} == set(settings.push_queues)
    invoker = plan.of_type("google_cloud_run_v2_service_iam_member")["google_cloud_run_v2_service_iam_member.run_task"]
    assert invoker["member"] == f"serviceAccount:{settings.tasks_account}"
