"""Deploy, plan, scale or destroy Tally in a Google Cloud project: what `make deploy` and its sisters run.

Every step looks before it acts, so that a run that was cut off is simply run again. Terraform does all that can be
described; this does what must be there before (a bucket for its state), between (an image, the first ballot key) and
after (another count of workers).
"""

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra import package

ROOT = Path(__file__).resolve().parents[1]
TERRAFORM = ROOT / "infra" / "terraform"
# What Terraform itself calls before it can enable an API.
FIRST_APIS = ("cloudresourcemanager.googleapis.com", "serviceusage.googleapis.com", "storage.googleapis.com")
# What an image build and the first ballot key need, made before everything else.
FOUNDATION = (
    "google_artifact_registry_repository_iam_member.builder_writes",
    "google_project_iam_member.builder_logs",
    "google_secret_manager_secret.ballot_keys",
    "google_storage_bucket_iam_member.builder_reads_source",
)
# What Terraform's deletion_protection guards: it is lifted before a destroy.
PROTECTED = (
    "google_cloud_run_v2_job.worker",
    "google_cloud_run_v2_worker_pool.task_worker",
    "google_cloud_run_v2_worker_pool.worker",
    "google_firestore_database.this",
    "google_pubsub_subscription.dead_letters",
    "google_pubsub_subscription.votes",
    "google_pubsub_topic.dead_letters",
    "google_pubsub_topic.votes",
    "google_secret_manager_secret.ballot_keys",
)
NO_IMAGE = "sha256:" + "0" * 64
MAX_WORKERS = 4
PAUSE_SECONDS = 30


class Stop(Exception):
    """The command cannot go on; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """`variables` is the tfvars file; `name` is the prefix of every resource."""

    project: str
    region: str
    name: str
    variables: Path

    @property
    def state_bucket(self) -> str:
        return f"{self.project}-{self.name}-state"

    @property
    def image(self) -> str:
        return f"{self.region}-docker.pkg.dev/{self.project}/{self.name}-images/worker"


class Tools:
    """Runs gcloud and terraform, as whom gcloud is logged in."""

    def __init__(self) -> None:
        for tool in ("gcloud", "terraform"):
            if shutil.which(tool) is None:
                raise Stop(f"{tool} is not installed")

    def run(self, *command: str, stdin: str | None = None, folder: Path = ROOT, tries: int = 1) -> None:
        """Run and show; raise Stop if it fails each time. Between tries a pause, in which new grants are seen."""
        for left in reversed(range(tries)):
            environment = self._environment(command)
            done = subprocess.run(command, input=stdin, text=True, check=False, cwd=folder, env=environment)
            if done.returncode == 0:
                return
            if left:
                time.sleep(PAUSE_SECONDS)
        raise Stop(f"{' '.join(command[:3])} failed with {done.returncode}")

    def ask(self, *command: str) -> str | None:
        """Return what the command prints, or None if it fails: what was asked for is not there."""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if done.returncode else done.stdout.strip()

    def _environment(self, command: Sequence[str]) -> dict[str, str]:
        if command[0] != "terraform" or "GOOGLE_APPLICATION_CREDENTIALS" in os.environ:
            return dict(os.environ)
        token = self.ask("gcloud", "auth", "print-access-token")
        if token is None:
            raise Stop("gcloud is not logged in: run `gcloud auth login`")
        return {**os.environ, "GOOGLE_OAUTH_ACCESS_TOKEN": token}


def deploy(tools: Tools, it: Deployment) -> None:
    """Package, build, apply. Safe to run again."""
    tools.run("gcloud", "services", "enable", *FIRST_APIS, f"--project={it.project}")
    make_state_bucket(tools, it)
    init(tools, it, TERRAFORM)
    archive = package_source()
    targets = [f"-target={address}" for address in FOUNDATION]
    tools.run(
        "terraform",
        "apply",
        "-auto-approve",
        *targets,
        *variables(tools, it, archive, f"{it.image}@{NO_IMAGE}"),
        folder=TERRAFORM,
    )
    make_first_ballot_key(tools, it)
    image = build_image(tools, it)
    tools.run("terraform", "apply", "-auto-approve", *variables(tools, it, archive, image), folder=TERRAFORM)


def plan(tools: Tools, it: Deployment) -> None:
    """Show what deploy would change; changes nothing."""
    archive = package_source()
    image = built_image(tools, it, package.write_image_context(ROOT / "build" / "worker"))
    if _has_state(tools, it):
        folder = TERRAFORM
        init(tools, it, folder)
    else:  # a project with nothing in it yet
        folder = ROOT / "build" / "terraform"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(TERRAFORM, folder, ignore=shutil.ignore_patterns("backend.tf", ".terraform"))
        tools.run("terraform", "init", folder=folder)
    tools.run("terraform", "plan", *variables(tools, it, archive, image or f"{it.image}@{NO_IMAGE}"), folder=folder)


def destroy(tools: Tools, it: Deployment, *, delete_votes: bool) -> None:
    """Take everything down; the bucket with Terraform's state stays."""
    if not delete_votes:
        raise Stop("this deletes every poll, vote and ballot key for ever: say ARGS=--delete-votes if you mean it")
    init(tools, it, TERRAFORM)
    image = built_image(tools, it, package.write_image_context(ROOT / "build" / "worker"))
    values = [
        *variables(tools, it, package_source(), image or f"{it.image}@{NO_IMAGE}"),
        "-var=deletion_protection=false",
    ]
    # Protection is a property of what is protected: it is lifted by an apply of its own.
    lifted = [f"-target={address}" for address in PROTECTED]
    tools.run("terraform", "apply", "-auto-approve", *lifted, *values, folder=TERRAFORM)
    tools.run("terraform", "destroy", "-auto-approve", *values, folder=TERRAFORM)


def scale(tools: Tools, it: Deployment, *, workers: int, backlog_is_empty: bool) -> None:
    """Set the count of workers of each stream; Terraform leaves it alone from then on."""
    if not 0 <= workers <= MAX_WORKERS:
        raise Stop(f"WORKERS={workers}: want 0 to {MAX_WORKERS}; more of them get in each other's way")
    if workers == 0 and not backlog_is_empty:
        raise Stop(
            "without a worker, votes that wait are lost when their retention ends: look at the backlog on the "
            "dashboard, and say ARGS=--backlog-is-empty when it is 0"
        )
    where = (f"--region={it.region}", f"--project={it.project}")
    pools = tools.ask("gcloud", "run", "worker-pools", "list", "--format=value(metadata.name)", *where) or ""
    ours = [pool for pool in pools.split() if re.fullmatch(rf"{it.name}-worker(-\d+)?", pool)]
    if not ours:
        raise Stop(f"there is no worker pool {it.name}-worker in {it.region}: with a schedule the worker is a job")
    for pool in ours:
        tools.run("gcloud", "run", "worker-pools", "update", pool, f"--instances={workers}", *where)


def make_state_bucket(tools: Tools, it: Deployment) -> None:
    """Make the bucket of Terraform's state unless it is there, with versions, so that a bad state can be undone."""
    if not _has_state(tools, it):
        tools.run(
            *("gcloud", "storage", "buckets", "create", f"gs://{it.state_bucket}", f"--project={it.project}"),
            *(f"--location={it.region}", "--uniform-bucket-level-access", "--public-access-prevention"),
        )
    tools.run("gcloud", "storage", "buckets", "update", f"gs://{it.state_bucket}", "--versioning")


def _has_state(tools: Tools, it: Deployment) -> bool:
    return tools.ask("gcloud", "storage", "buckets", "describe", f"gs://{it.state_bucket}") is not None


def init(tools: Tools, it: Deployment, folder: Path) -> None:
    tools.run(
        *("terraform", "init", "-reconfigure", f"-backend-config=bucket={it.state_bucket}"),
        "-backend-config=prefix=terraform",
        folder=folder,
    )


def package_source() -> Path:
    archive = ROOT / "build" / "functions.zip"
    package.write_source(archive)
    return archive


def variables(tools: Tools, it: Deployment, archive: Path, image: str) -> list[str]:
    number = tools.ask("gcloud", "projects", "describe", it.project, "--format=value(projectNumber)")
    if not number:
        raise Stop(f"there is no project {it.project}, or it may not be seen: see `gcloud auth list`")
    return [
        f"-var-file={it.variables.resolve()}",
        f"-var=project_id={it.project}",
        f"-var=project_number={number}",
        f"-var=region={it.region}",
        f"-var=name={it.name}",
        f"-var=source_archive={archive}",
        f"-var=worker_image={image}",
    ]


def make_first_ballot_key(tools: Tools, it: Deployment, token: Callable[[int], str] = secrets.token_hex) -> None:
    """Add version 1 unless the secret has a version, in whatever state: a second one would be a rotation."""
    secret = (f"{it.name}-ballot-keys", f"--project={it.project}")
    versions = tools.ask("gcloud", "secrets", "versions", "list", *secret, "--format=value(name)")
    if versions is None:
        raise Stop(f"cannot list the versions of the secret {secret[0]}")
    if not versions:
        tools.run("gcloud", "secrets", "versions", "add", *secret, "--data-file=-", stdin=token(32))


def build_image(tools: Tools, it: Deployment) -> str:
    """Build the worker's image unless one of this very source is there; return it by digest."""
    context = ROOT / "build" / "worker"
    tag = package.write_image_context(context)
    built = built_image(tools, it, tag)
    if built is None:
        builder = f"{it.name}-builder@{it.project}.iam.gserviceaccount.com"
        tools.run(
            *("gcloud", "builds", "submit", str(context), f"--config={ROOT / 'infra' / 'cloudbuild.yaml'}"),
            *(f"--project={it.project}", f"--region={it.region}", f"--substitutions=_IMAGE={it.image}:{tag}"),
            f"--service-account=projects/{it.project}/serviceAccounts/{builder}",
            f"--gcs-source-staging-dir=gs://{it.project}-{it.name}-source/builds",
            tries=3,
        )
        built = built_image(tools, it, tag)
    if built is None:
        raise Stop(f"{it.image}:{tag} was built but is not in the registry")
    return built


def built_image(tools: Tools, it: Deployment, tag: str) -> str | None:
    digest = tools.ask(
        *("gcloud", "artifacts", "docker", "images", "describe", f"{it.image}:{tag}"),
        "--format=value(image_summary.digest)",
    )
    return f"{it.image}@{digest}" if digest else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Deploy, plan, scale or destroy Tally in a Google Cloud project.")
    parser.add_argument("command", choices=("deploy", "plan", "scale", "destroy"))
    parser.add_argument("--project", required=True)
    parser.add_argument("--region", default="us-central1")
    parser.add_argument("--name", default="tally", help="prefix of every resource")
    parser.add_argument("--variables", type=Path, default=TERRAFORM / "examples" / "smallest.tfvars")
    parser.add_argument("--workers", type=int, help="scale: how many for each stream")
    parser.add_argument("--backlog-is-empty", action="store_true", help="scale: needed for 0 workers")
    parser.add_argument("--delete-votes", action="store_true", help="destroy: needed")
    given = parser.parse_args(arguments)
    try:
        if not given.project:
            raise Stop("name the project: PROJECT=…")
        if not given.variables.is_file():
            raise Stop(f"VARS={given.variables}: there is no such file")
        tools = Tools()
        it = Deployment(project=given.project, region=given.region, name=given.name, variables=given.variables)
        match given.command:
            case "deploy":
                deploy(tools, it)
            case "plan":
                plan(tools, it)
            case "scale":
                if given.workers is None:
                    raise Stop("say how many: WORKERS=…")
                scale(tools, it, workers=given.workers, backlog_is_empty=given.backlog_is_empty)
            case "destroy":
                destroy(tools, it, delete_votes=given.delete_votes)
    except Stop as why:
        sys.exit(f"{given.command}: {why}")


if __name__ == "__main__":
    main()
