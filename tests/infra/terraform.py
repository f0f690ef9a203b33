"""Terraform on the machine, with a provider: the real one where it can be fetched, else the stand-in.

The stand-in (named by TALLY_TERRAFORM_STANDIN) serves the real provider's schema to Terraform with no network; every
API behind it is made up. It runs in a virtual environment of its own, `.venv-tf`, which `make infra-tools` prepares.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.process import guarded

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "infra" / "terraform"
EXAMPLES = ("smallest", "evening", "national")
IMAGE = "us-central1-docker.pkg.dev/tally-demo/tally-images/worker@sha256:" + "0" * 64
REGISTRY_SECONDS = 300
SCHEMA_ADDITIONS = Path(__file__).with_name("schema_additions.json")


class NoProvider(Exception):
    """Neither the real provider nor a stand-in can be had; `broken` when there is one that does not work."""

    def __init__(self, why: str, *, broken: bool = False) -> None:
        super().__init__(why)
        self.broken = broken


@dataclass(frozen=True, slots=True, kw_only=True)
class Terraform:
    """Runs terraform with a prepared environment. `real` tells which provider answers; `work` is a scratch folder."""

    environment: Mapping[str, str]
    work: Path
    real: bool

    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["terraform", *arguments], cwd=folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def copy(self, name: str) -> Path:
        """Lay a copy of the configuration, without its backend; all copies share what `init` fetched."""
        folder = self.work / name
        shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("backend.tf", ".terraform", "*.tfstate*"))
        lock = self.work / "probe" / ".terraform.lock.hcl"
        if lock.exists():
            shutil.copy(lock, folder)
        return folder

    def plan(self, folder: Path, **variables: Any) -> "Plan":
        """Plan from no state; raise PlanRefused with Terraform's words."""
        out = folder / "plan.bin"
        done = self.run(folder, "plan", "-no-color", "-lock=false", f"-out={out}", *arguments(variables))
        if done.returncode:
            raise PlanRefused(" ".join((done.stdout + done.stderr).replace("│", " ").split()))
        shown = self.run(folder, "show", "-json", str(out))
        assert shown.returncode == 0, shown.stderr
        return Plan(json.loads(shown.stdout))


class PlanRefused(Exception):
    pass


class Plan:
    """What `terraform show -json` says of a plan."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def resources(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document["planned_values"]["root_module"]["resources"]
        return [resource for resource in found if resource["mode"] == "managed"]

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return address → planned values of one resource type."""
        return {one["address"]: one["values"] for one in self.resources if one["type"] == kind}


def targets() -> set[str]:
    """Return the function targets of main.py."""
    found = re.findall(r"^@aio\.http\nasync def (\w+)", (ROOT / "functions" / "main.py").read_text(), re.MULTILINE)
    assert {"admin", "public"} <= set(found)
    return set(found)


def variables(**changed: Any) -> dict[str, Any]:
    """Return the variables that every plan needs, with those of a test."""
    return {
        "project_id": "tally-demo",
        "project_number": "123456789012",
        "push_queues": {"mail": {}, "reports": {}},
        "source_archive": str(SOURCE / "tests" / "source.zip"),
        "worker_image": IMAGE,
        "settle_seconds": 0,
        **changed,
    }


def arguments(values: Mapping[str, Any]) -> list[str]:
    """Return -var and (for `example`) -var-file arguments."""
    found = []
    for name, value in values.items():
        if name == "example":
            found.append(f"-var-file=examples/{value}.tfvars")
        else:
            found.append(f"-var={name}={value if isinstance(value, str) else json.dumps(value)}")
    return found


@contextmanager
def opened(work: Path) -> Iterator[Terraform]:
    """Yield a Terraform with the best provider that can be had; raise NoProvider where there is none."""
    if shutil.which("terraform") is None:
        raise NoProvider("terraform is not installed")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    environment |= {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
    environment["TF_DATA_DIR"] = str(work / "data")
    # A made-up token is enough to plan what does not exist yet.
    real = Terraform(environment={**environment, "GOOGLE_OAUTH_ACCESS_TOKEN": "none"}, work=work, real=True)
    if _initialises(real):
        yield real
        return
    with _standin(work) as found:
        yield Terraform(environment=environment | found, work=work, real=False)


def _initialises(terraform: Terraform) -> bool:
    folder = terraform.work / "probe"
    folder.mkdir()
    shutil.copy(SOURCE / "versions.tf", folder)
    shutil.copy(SOURCE / "variables.tf", folder)
    try:
        done = subprocess.run(
            ["terraform", "init", "-backend=false", "-no-color"],
            cwd=folder,
            env=terraform.environment,
            capture_output=True,
            check=False,
            timeout=REGISTRY_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@contextmanager
def _standin(work: Path) -> Iterator[dict[str, str]]:
    named = os.environ.get("TALLY_TERRAFORM_STANDIN")
    if not named:
        raise NoProvider("the google provider cannot be fetched and TALLY_TERRAFORM_STANDIN names no stand-in")
    folder = Path(named).resolve()
    if not folder.is_dir():
        raise NoProvider(f"the google provider cannot be fetched and TALLY_TERRAFORM_STANDIN={named} is not there")
    python = ROOT / ".venv-tf" / "bin" / "python"
    if not python.exists():
        raise NoProvider(f"the stand-in needs {python}: run `make infra-tools`", broken=True)
    for part in ("schema.json", "google_standin.py"):
        if not (folder / part).is_file():
            raise NoProvider(f"TALLY_TERRAFORM_STANDIN={named} has no {part}", broken=True)
    schema = work / "schema.json"
    schema.write_text(json.dumps(_with_additions(json.loads((folder / "schema.json").read_text()))))
    empty = work / "no-mirror"
    empty.mkdir()
    settings = work / "terraformrc"
    settings.write_text(
        f'disable_checkpoint = true\nprovider_installation {{\n  filesystem_mirror {{ path = "{empty}" }}\n}}\n'
    )
    process = subprocess.Popen(
        guarded([str(python), str(folder / "google_standin.py"), "--reattach"]),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GOOGLE_STANDIN_SCHEMA": str(schema)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not re.match(r'\{"hashicorp/google"', line):
            raise NoProvider(f"the stand-in in {folder} does not start: it said {line!r}", broken=True)
        yield {"TF_CLI_CONFIG_FILE": str(settings), "TF_REATTACH_PROVIDERS": line}
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def _with_additions(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the resource types that we use and the stand-in's selection lacks."""
    resources = schema["provider_schemas"]["hashicorp/google"]["resource_schemas"]
    for name, block in json.loads(SCHEMA_ADDITIONS.read_text()).items():
        resources.setdefault(name, block)
    return schema
