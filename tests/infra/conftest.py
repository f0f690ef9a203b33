"""One Terraform and one plan of each example for a session; with no provider tests skip, with a broken one CI fails."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.infra import terraform
from tests.infra.terraform import EXAMPLES, Plan, Terraform, variables


@pytest.fixture(scope="session")
def tf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terraform]:
    try:
        with terraform.opened(tmp_path_factory.mktemp("terraform")) as found:
            yield found
    except terraform.NoProvider as error:
        if error.broken and os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"Terraform checks not run: {error}")


@pytest.fixture(scope="session")
def folder(tf: Terraform) -> Path:
    return tf.copy("main")


@pytest.fixture(scope="session")
def plan_of(tf: Terraform, folder: Path) -> Callable[[str], Plan]:
    plans: dict[str, Plan] = {}

    def planned(example: str) -> Plan:
        if example not in plans:
            plans[example] = tf.plan(folder, **variables(example=example))
        return plans[example]

    return planned


@pytest.fixture(params=EXAMPLES)
def plan(request: pytest.FixtureRequest, plan_of: Callable[[str], Plan]) -> Plan:
    found: Plan = plan_of(request.param)
    return found
