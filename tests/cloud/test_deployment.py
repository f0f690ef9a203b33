"""A vote counts once, from outside to the result, on the deployment as it is."""

import json
from typing import Any

import pytest
from test_utils.retry import RetryResult

from tally.cli.client import Client, poll_path
from tests.cloud.conftest import Deployment

VOTES = 30
COPIES = 3


@pytest.fixture
def poll(deployment: Deployment) -> str:
    poll_id = deployment.new_poll()
    deployment.tally("poll", "create", poll_id, "red=Red", "blue=Blue", "--expected-votes", "2000")
    return poll_id


def results(deployment: Deployment, poll: str, total: int) -> Any:
    """Return the results once they show `total` votes; fail after some minutes."""

    def read() -> Any:
        return deployment.public.call("GET", poll_path(poll, "/results")).json()

    counted = RetryResult(lambda answer: answer["total"] >= total, max_tries=9)
    return counted(read)()


def test_both_functions_answer(deployment: Deployment) -> None:
    for client in (deployment.public, deployment.admin):
        assert client.call("GET", "/live").status == 200
        assert client.call("GET", "/health").status == 200


def test_admin_asks_for_an_identity(deployment: Deployment) -> None:
    assert Client(deployment.outputs["admin_url"]).call("GET", "/v1/polls").status in (401, 403)


def test_public_serves_no_admin_route(deployment: Deployment) -> None:
    assert deployment.public.call("POST", "/v1/polls", {}).status in (403, 404, 405)


def test_the_worker_has_proved_that_the_store_guards_versions(deployment: Deployment) -> None:
    """It counts only after its probe of the database: else it would not have said that it started."""
    deployment.count()
    found = deployment.ask(
        *("logging", "read", 'jsonPayload.action="worker-started"', "--freshness=7d", "--limit=1"),
        "--format=value(jsonPayload.action)",
    )
    assert found == "worker-started"


def test_every_vote_counts_once_however_often_it_is_sent(deployment: Deployment, poll: str) -> None:
    votes = [{"option": "red" if number % 3 else "blue", "voter": f"voter-{number}"} for number in range(VOTES)]
    for _ in range(COPIES):
        for vote in votes:
            answer = deployment.public.call("POST", poll_path(poll, "/votes"), vote)
            assert answer.status == 202, answer.body
    deployment.count()
    found = results(deployment, poll, VOTES)
    assert found["total"] == VOTES
    assert found["counts"] == {"red": VOTES * 2 // 3, "blue": VOTES // 3}


def test_the_commands_work_with_an_identity_token(deployment: Deployment, poll: str) -> None:
    deployment.tally("vote", poll, "red", "--voter", "me", public=True)
    deployment.count()
    results(deployment, poll, 1)
    found = json.loads(deployment.tally("results", poll, "--json", public=True))
    assert (found["total"], found["counts"]["red"]) == (1, 1)
    assert json.loads(deployment.tally("poll", "show", poll, "--json"))["id"] == poll
    assert json.loads(deployment.tally("poll", "close", poll, "--json"))["status"]
