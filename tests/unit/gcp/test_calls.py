"""What goes over the wire: routing headers, time limits, repetitions. A small server stands for Google's."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from grpc import StatusCode

from tally.errors import BackendError, Refused, Rejected, Unavailable
from tally.gcp import calls
from tally.ports import Backend, Delete, Entity, Insert, OnConflict, Outgoing, Query, Update, Upsert
from tests.unit.gcp.conftest import FakeGoogle
from tests.unit.gcp.kinds import KINDS

Call = Callable[[Backend], Awaitable[object]]
KEY = (("Thing", "a"),)
THING = Entity(key=KEY, properties={"n": 1})

DATASTORE: dict[str, tuple[str, Call]] = {
    "get": ("Lookup", lambda backend: backend.store.get([KEY])),
    "insert": ("Commit", lambda backend: backend.store.commit([Insert(THING)])),
    "upsert": ("Commit", lambda backend: backend.store.commit([Upsert(THING)])),
    "update": (
        "Commit",
        lambda backend: backend.store.commit([Update(entity=THING, base_version=1, on_conflict=OnConflict.FAIL)]),
    ),
    "delete": ("Commit", lambda backend: backend.store.commit([Delete(key=KEY)])),
    "query": ("RunQuery", lambda backend: backend.store.query(Query(kind="Thing"))),
}
PUBSUB: dict[str, tuple[str, str, Call]] = {
    "publish": (
        "Publish",
        "topic=projects/the-project/topics/votes",
        lambda backend: backend.publisher.publish("votes", [Outgoing(b"x", {})]),
    ),
    "pull": (
        "Pull",
        "subscription=projects/the-project/subscriptions/votes",
        lambda backend: backend.puller("votes").pull(1),
    ),
    "acknowledge": (
        "Acknowledge",
        "subscription=projects/the-project/subscriptions/votes",
        lambda backend: backend.puller("votes").acknowledge(["a"]),
    ),
    "extend": (
        "ModifyAckDeadline",
        "subscription=projects/the-project/subscriptions/votes",
        lambda backend: backend.puller("votes").extend(["a"], 10),
    ),
}


@pytest.mark.parametrize("name", DATASTORE)
async def test_every_call_of_datastore_is_routed_to_its_database(
    google: FakeGoogle, backend: Backend, name: str
) -> None:
    method, call = DATASTORE[name]
    await call(backend)
    ((called, metadata),) = google.calls
    assert called == method
    assert metadata["x-goog-request-params"] == "project_id=the-project&database_id=the-database"


@pytest.mark.parametrize("name", PUBSUB)
async def test_every_call_of_pubsub_is_routed_to_its_resource(google: FakeGoogle, backend: Backend, name: str) -> None:
    method, resource, call = PUBSUB[name]
    await call(backend)
    ((called, metadata),) = google.calls
    assert called == method
    assert metadata["x-goog-request-params"] == resource


@pytest.mark.parametrize("code", KINDS, ids=lambda code: code.name)
async def test_a_refused_commit_is_sent_once_and_becomes_the_ports_error(
    google: FakeGoogle, backend: Backend, code: StatusCode
) -> None:
    google.fail("Commit", code)
    with pytest.raises(BackendError) as caught:
        await backend.store.commit([Insert(THING)])
    assert (type(caught.value), caught.value.status) == (KINDS[code], code.name)
    assert google.count("Commit") == 1


async def test_a_read_is_repeated_while_the_service_is_unavailable(google: FakeGoogle, backend: Backend) -> None:
    for method, call in (DATASTORE["get"], DATASTORE["query"]):
        google.fail(method, StatusCode.UNAVAILABLE, StatusCode.PERMISSION_DENIED)
        with pytest.raises(Unavailable) as caught:
            await call(backend)
        assert caught.value.status == "PERMISSION_DENIED"
        assert google.count(method) == 2


async def test_a_publish_is_repeated_after_each_passing_error_and_not_after_a_lasting_one(
    google: FakeGoogle, backend: Backend
) -> None:
    passing = (StatusCode.UNAVAILABLE, StatusCode.ABORTED, StatusCode.INTERNAL, StatusCode.UNKNOWN)
    google.fail("Publish", *passing, StatusCode.NOT_FOUND)
    with pytest.raises(Refused):
        await backend.publisher.publish("votes", [Outgoing(b"x", {})])
    assert google.count("Publish") == len(passing) + 1


async def test_a_publish_ends_in_time_when_the_service_is_silent_after_an_error(
    google: FakeGoogle, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library alone would give the last try the whole time again."""
    assert calls.PUBLISH.seconds <= 8
    monkeypatch.setattr(calls, "PUBLISH", replace(calls.PUBLISH, seconds=1.2))
    started = asyncio.get_running_loop().time()

    async def answer(_request: bytes, context: object) -> bytes:
        if asyncio.get_running_loop().time() - started > 0.6:
            google.hang("Publish")
        await context.abort(StatusCode.UNAVAILABLE, "by plan")  # type: ignore[attr-defined]  # gRPC's context
        return b""

    google.answers["Publish"] = answer
    with pytest.raises(Unavailable):
        await backend.publisher.publish("votes", [Outgoing(b"x", {})])
    assert asyncio.get_running_loop().time() - started < 1.7
    assert google.count("Publish") >= 2


@pytest.mark.parametrize("name", [*DATASTORE, *PUBSUB])
async def test_every_call_ends_by_itself_when_the_service_is_silent(
    google: FakeGoogle, backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, call = DATASTORE[name] if name in DATASTORE else (PUBSUB[name][0], PUBSUB[name][2])
    for policy in ("LOOKUP", "COMMIT", "QUERY", "PUBLISH", "PULL", "ACKNOWLEDGE", "EXTEND"):
        monkeypatch.setattr(calls, policy, replace(getattr(calls, policy), seconds=0.2))
    google.hang(method)
    if name == "pull":
        assert await call(backend) == ()
    else:
        with pytest.raises(Unavailable) as caught:
            await call(backend)
        assert caught.value.status == "DEADLINE_EXCEEDED"


async def test_an_idle_pull_is_no_error_and_any_other_end_of_it_is(google: FakeGoogle, backend: Backend) -> None:
    google.fail("Pull", StatusCode.DEADLINE_EXCEEDED, StatusCode.UNAVAILABLE)
    assert await backend.puller("votes").pull(10) == ()
    with pytest.raises(Unavailable):
        await backend.puller("votes").pull(10)
    assert google.count("Pull") == 2


@pytest.mark.parametrize("code", [StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION], ids=lambda c: c.name)
async def test_ack_ids_that_the_service_refuses_are_harmless_and_logged(
    google: FakeGoogle, backend: Backend, code: StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    """Their messages come again; the ledger knows their ballots."""
    google.fail("Acknowledge", code)
    google.fail("ModifyAckDeadline", code)
    await backend.puller("votes").acknowledge(["expired"])
    await backend.puller("votes").extend(["expired"], 10)
    assert [record.message for record in caplog.records] == ["ack-ids-refused"] * 2


async def test_an_acknowledgement_that_was_lost_is_an_outage(google: FakeGoogle, backend: Backend) -> None:
    google.fail("Acknowledge", StatusCode.UNAVAILABLE)
    with pytest.raises(Unavailable):
        await backend.puller("votes").acknowledge(["a"])


async def test_a_cancelled_call_is_cancelled_and_no_outage(google: FakeGoogle, backend: Backend) -> None:
    google.hang("Pull")
    pull = asyncio.ensure_future(backend.puller("votes").pull(1))
    await google.called.wait()
    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull


async def test_a_publish_over_the_limits_is_rejected_before_it_is_sent(google: FakeGoogle, backend: Backend) -> None:
    for messages in ([Outgoing(b"x", {})] * 1_001, [Outgoing(bytes(9_000_001), {})]):
        with pytest.raises(Rejected, match="1 to 1000 messages, and at most 9000000 bytes"):
            await backend.publisher.publish("votes", messages)
    assert google.calls == []
