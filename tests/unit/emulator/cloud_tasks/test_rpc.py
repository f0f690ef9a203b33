"""The table of RPCs against the client library's own: what it can call is served, at the same paths."""

import inspect
import re
from typing import Any

import pytest
from google.cloud.tasks_v2.services.cloud_tasks.transports import grpc as client_grpc
from google.cloud.tasks_v2.services.cloud_tasks.transports import rest_base

from emulator.cloud_tasks.api import CloudTasks
from emulator.cloud_tasks.errors import ApiError
from emulator.cloud_tasks.rest import build
from emulator.cloud_tasks.rpc import RPCS

BINDINGS: dict[str, Any] = {
    name.removeprefix("_Base"): item._get_http_options()[0]
    for name, item in vars(rest_base._BaseCloudTasksRestTransport).items()
    if name.startswith("_Base")
}


def test_every_method_that_the_client_calls_is_served() -> None:
    called = set(re.findall(r'"(/google\.[\w.]+/\w+)"', inspect.getsource(client_grpc)))
    assert called == {f"/{rpc.service}/{rpc.name}" for rpc in RPCS}


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.name)
def test_an_rpc_has_the_clients_http_binding_and_a_method(rpc: Any) -> None:
    binding = BINDINGS[rpc.name]
    assert (rpc.verb.lower(), f"/v2/{rpc.path}", rpc.body) == (
        binding["method"],
        binding["uri"],
        binding.get("body", ""),
    )
    assert callable(getattr(CloudTasks, rpc.method))


def rpc(name: str) -> Any:
    return next(rpc for rpc in RPCS if rpc.name == name)


def test_a_path_wins_over_the_body_and_the_query() -> None:
    made = build(rpc("UpdateQueue"), ("queue.name", "a"), [("updateMask", "rateLimits")], b'{"name": "b"}')
    assert (made.queue.name, list(made.update_mask.paths)) == ("a", ["rate_limits"])


def test_system_parameters_change_nothing() -> None:
    query = [
        ("$alt", "json;enum-encoding=int"),
        ("alt", "json"),
        ("key", "k"),
        ("prettyPrint", "true"),
        ("pageSize", "5"),
    ]
    made = build(rpc("ListQueues"), ("parent", "p"), query, b"")
    assert (made.parent, made.page_size) == ("p", 5)


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ([], b"{"),
        ([], b"[]"),
        ([], b"\xff"),
        ([("colour", "red")], b""),
        ([("task.colour", "red")], b"{}"),
        ([("task", "x"), ("task.name", "y")], b""),
    ],
)
def test_what_is_no_request_is_refused(query: list[tuple[str, str]], body: bytes) -> None:
    with pytest.raises(ApiError, match=r"JSON|set twice"):
        build(rpc("CreateTask"), ("parent", "p"), query, body)
