"""The steps of a deployment, in order, against tools that only record; and what is refused."""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from infra import deploy
from tests.infra.terraform import EXAMPLES, ROOT, SOURCE, Terraform

IT = deploy.Deployment(
    project="tally-demo", region="us-central1", name="tally", variables=SOURCE / "examples" / "smallest.tfvars"
)


@dataclass(slots=True, kw_only=True)
class Recorder(deploy.Tools):
    """A project as gcloud would see it; `ran` are the commands that change something."""

    bucket: bool = False
    key: bool = False
    image: bool = False
    pools: tuple[str, ...] = ("tally-worker",)
    ran: list[str] = field(default_factory=list)
    stdin: list[str] = field(default_factory=list)

    def run(self, *command: str, stdin: str | None = None, folder: Path = ROOT, tries: int = 1) -> None:
        self.ran.append(" ".join(command))
        if stdin:
            self.stdin.append(stdin)
        self.bucket |= "buckets create" in self.ran[-1]
        self.key |= "versions add" in self.ran[-1]
        self.image |= "builds submit" in self.ran[-1]

    def ask(self, *command: str) -> str | None:
        asked = " ".join(command)
        if "buckets describe" in asked:
            return "there" if self.bucket else None
        if "versions list" in asked:
            return "1" if self.key else ""
        if "projects describe" in asked:
            return "123456789012"
        if "worker-pools list" in asked:
            return "\n".join(self.pools)
        assert "images describe" in asked
        return "sha256:" + "a" * 64 if self.image else None

    def steps(self) -> list[str]:
        """Return the commands, shortened to their verbs."""
        return [
            " ".join(word for word in one.split()[:4] if not word.startswith(("-", "/", "gs:"))) for one in self.ran
        ]


def test_the_first_deploy_makes_what_each_next_step_needs() -> None:
    tools = Recorder()
    deploy.deploy(tools, IT)
    assert tools.steps() == [
        "gcloud services enable cloudresourcemanager.googleapis.com",
        "gcloud storage buckets create",
        "gcloud storage buckets update",
        "terraform init",
        "terraform apply",
        "gcloud secrets versions add",
        "gcloud builds submit",
        "terraform apply",
    ]
    foundation, everything = (one for one in tools.ran if one.startswith("terraform apply"))
    assert foundation.count("-target=") == len(deploy.FOUNDATION)
    assert "-target" not in everything
    assert f"-var=worker_image={IT.image}@sha256:{'a' * 64}" in everything


@dataclass(slots=True, kw_only=True)
class StandIn(Recorder):
    """A project whose Terraform is real, on the stand-in provider."""

    terraform: Terraform
    said: list[str] = field(default_factory=list)

    def run(self, *command: str, stdin: str | None = None, folder: Path = ROOT, tries: int = 1) -> None:
        Recorder.run(self, *command, stdin=stdin, folder=folder, tries=tries)
        if command[:2] in (("terraform", "apply"), ("terraform", "destroy")):
            done = self.terraform.run(folder, command[1], "-no-color", "-var=settle_seconds=0", *command[2:])
            assert done.returncode == 0, done.stderr
            self.said.append(done.stdout)


def test_terraform_takes_the_steps_from_the_first_deploy_to_tear_down(
    tf: Terraform, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tf.real:
        pytest.skip("applies only against the stand-in")
    folder = tf.copy("deploy")
    monkeypatch.setattr(deploy, "TERRAFORM", folder)
    it = replace(IT, variables=SOURCE / "examples" / "national.tfvars")
    tools = StandIn(terraform=tf)
    deploy.deploy(tools, it)
    assert re.search(r"Apply complete! Resources: \d+ added, 0 changed, 0 destroyed", tools.said[-1])
    assert 'public_url = "https://vote.example.com"' in re.sub(" +", " ", tools.said[-1])
    deploy.deploy(tools, it)
    assert "Resources: 0 added, 0 changed, 0 destroyed" in tools.said[-1]
    deploy.destroy(tools, it, delete_votes=True)
    assert json.loads((folder / "terraform.tfstate").read_text())["resources"] == []


def test_a_second_deploy_makes_nothing_again() -> None:
    tools = Recorder(bucket=True, key=True, image=True)
    deploy.deploy(tools, IT)
    assert not [one for one in tools.ran if "create" in one or "versions add" in one or "builds submit" in one]


def test_the_ballot_key_is_made_here_and_passes_no_command_line() -> None:
    tools = Recorder()
    deploy.make_first_ballot_key(tools, IT, token=lambda size: "5f" * size)
    assert tools.stdin == ["5f" * 32]
    assert "5f5f" not in " ".join(tools.ran)


def test_the_image_is_tagged_with_its_source_and_deployed_by_digest() -> None:
    tools = Recorder()
    assert deploy.build_image(tools, IT) == f"{IT.image}@sha256:{'a' * 64}"
    (build,) = tools.ran
    tag = build.partition(f"_IMAGE={IT.image}:")[2].split()[0]
    assert len(bytes.fromhex(tag)) == hashlib.sha256().digest_size


def test_a_build_whose_image_is_not_there_stops_the_deploy(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Recorder()
    monkeypatch.setattr(Recorder, "ask", lambda self, *command: None)
    with pytest.raises(deploy.Stop, match="not in the registry"):
        deploy.build_image(tools, IT)


@pytest.mark.parametrize("bucket", [False, True])
def test_plan_changes_nothing(bucket: bool) -> None:
    tools = Recorder(bucket=bucket)
    deploy.plan(tools, IT)
    assert tools.steps() == ["terraform init", "terraform plan"]


def test_destroy_must_be_meant_and_lifts_protection_first() -> None:
    tools = Recorder(bucket=True, image=True)
    with pytest.raises(deploy.Stop, match="--delete-votes"):
        deploy.destroy(tools, IT, delete_votes=False)
    assert tools.ran == []
    deploy.destroy(tools, IT, delete_votes=True)
    assert tools.steps() == ["terraform init", "terraform apply", "terraform destroy"]
    assert all("-var=deletion_protection=false" in one for one in tools.ran[1:])


def test_what_is_protected_is_all_that_destroy_lifts() -> None:
    """Each resource whose protection is a variable is in the list, or `make destroy` would be refused half-way."""
    protected = set()
    for path in SOURCE.glob("*.tf"):
        for block in path.read_text().split("\nresource ")[1:]:
            kind, name = block.split('"')[1:4:2]
            if re.search(r"var\.deletion_protection|local\.stream_protected", block.split("\n}\n")[0]):
                protected.add(f"{kind}.{name}")
    assert protected == set(deploy.PROTECTED)


@pytest.mark.parametrize(
    ("workers", "empty", "said"), [(5, True, "want 0 to 4"), (-1, True, "want"), (0, False, "backlog")]
)
def test_a_wrong_count_of_workers_is_refused(workers: int, empty: bool, said: str) -> None:
    tools = Recorder()
    with pytest.raises(deploy.Stop, match=said):
        deploy.scale(tools, IT, workers=workers, backlog_is_empty=empty)
    assert tools.ran == []


@pytest.mark.parametrize("workers", [0, 4])
def test_scale_sets_the_number_of_workers(workers: int) -> None:
    tools = Recorder()
    deploy.scale(tools, IT, workers=workers, backlog_is_empty=True)
    assert f"update tally-worker --instances={workers} --region=us-central1 --project=tally-demo" in tools.ran[0]


def test_scale_takes_the_pools_of_all_streams_and_of_nothing_else() -> None:
    others = ("tally-2-worker", "tally-task-worker", "other-worker")
    tools = Recorder(pools=("tally-worker", "tally-worker-1", "tally-worker-12", *others))
    deploy.scale(tools, IT, workers=2, backlog_is_empty=False)
    updated = [word for one in tools.ran for word in one.split() if "worker" in word and word != "worker-pools"]
    assert updated == ["tally-worker", "tally-worker-1", "tally-worker-12"]


def test_scale_without_a_pool_says_so() -> None:
    with pytest.raises(deploy.Stop, match="no worker pool tally-worker"):
        deploy.scale(Recorder(pools=()), IT, workers=2, backlog_is_empty=False)


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("PATH", str(tmp_path))
    yield


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["deploy", "--project="], "PROJECT="),
        (["deploy", "--project=p", "--variables=/none.tfvars"], "no such file"),
        (["deploy", "--project=p"], "gcloud is not installed"),
    ],
)
@pytest.mark.usefixtures("without_tools")
def test_a_command_that_cannot_run_says_why(arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        deploy.main(arguments)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["scale", "PROJECT=p"], "scale --project p --region us-central1"),
        (["scale", "PROJECT=p", "WORKERS=3"], "--workers 3"),
        (["deploy", "PROJECT=p", "REGION=europe-west1"], "deploy --project p --region europe-west1"),
        (["destroy", "PROJECT=p", "ARGS=--delete-votes"], "--delete-votes"),
    ],
)
def test_make_passes_its_variables_on(words: list[str], wanted: str) -> None:
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert wanted in " ".join(done.stdout.replace("\\\n", " ").replace('"', "").split())


def test_scale_without_a_count_is_not_a_count() -> None:
    done = subprocess.run(["make", "-n", "scale", "PROJECT=p"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--workers" not in done.stdout


def test_there_is_an_example_of_each_size() -> None:
    assert {path.stem for path in (SOURCE / "examples").glob("*.tfvars")} == set(EXAMPLES)
