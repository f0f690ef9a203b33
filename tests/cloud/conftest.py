"""A deployment, as `make deploy` left it: named by PROJECT (and REGION); without PROJECT these tests skip.

Run as `PROJECT=my-project make test ARGS=tests/cloud`, as someone who may call the admin function.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from test_utils.prefixer import Prefixer
from test_utils.retry import RetryErrors

from tally.cli.client import Client, Unreachable

TERRAFORM = Path(__file__).resolve().parents[2] / "infra" / "terraform"
TALLY = str(Path(sys.executable).with_name("tally"))
POLLS = Prefixer("tally", "cloud", separator="-")


@dataclass(slots=True, kw_only=True)
class Deployment:
    project: str
    region: str
    outputs: dict[str, Any]
    token: str
    polls: list[str] = field(default_factory=list)

    @property
    def admin(self) -> Client:
        return Client(self.outputs["admin_url"], self.token)

    @property
    def public(self) -> Client:
        return Client(self.outputs["public_url"], self.token)

    def new_poll(self) -> str:
        """Return an id that no run used before; the poll is deleted at the end."""
        self.polls.append(POLLS.create_prefix())
        return self.polls[-1]

    def count(self) -> None:
        """Have the votes counted now where the worker is a job; a pool does so by itself."""
        if self.ask("run", "jobs", "list", "--format=value(name)"):
            for worker in self.outputs["workers"]:
                self.ask("run", "jobs", "execute", worker, "--wait")

    def tally(self, *words: str, public: bool = False) -> str:
        """Run a `tally` command against the deployment as a user would, with an identity token."""
        url = self.outputs["public_url" if public else "admin_url"]
        return output(TALLY, *words, environment={**os.environ, "TALLY_URL": url, "TALLY_TOKEN": self.token})

    def ask(self, *command: str) -> str:
        where = (f"--project={self.project}", *((f"--region={self.region}",) if command[0] == "run" else ()))
        return output("gcloud", *command, *where)


def output(*command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command[:3])}: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture(scope="session")
def deployment() -> Iterator[Deployment]:
    project = os.environ.get("PROJECT")
    if not project:
        pytest.skip("names no deployment: set PROJECT")
    state = {name: value for name, value in os.environ.items() if name != "GOOGLE_APPLICATION_CREDENTIALS"}
    state["GOOGLE_OAUTH_ACCESS_TOKEN"] = output("gcloud", "auth", "print-access-token")
    values = json.loads(output("terraform", "output", "-json", cwd=TERRAFORM, environment=state))
    found = Deployment(
        project=project,
        region=os.environ.get("REGION", "us-central1"),
        outputs={name: value["value"] for name, value in values.items()},
        token=output("gcloud", "auth", "print-identity-token"),
    )
    RetryErrors(Unreachable, max_tries=4)(found.public.call)("GET", "/live")
    yield found
    listed = json.loads(found.tally("poll", "list", "--json"))["polls"]
    for poll in listed:
        left_over = POLLS.should_cleanup(poll["id"]) and poll["status"] != "deleted"
        if poll["id"] in found.polls or left_over:
            found.tally("poll", "delete", poll["id"], "--yes")
