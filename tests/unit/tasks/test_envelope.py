"""The vectors are for every language; Python is held to them here."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import InvalidInput
from tally.retry import RetryPolicy
from tally.tasks import envelope
from tally.tasks.task import JSON, TEXT, Task, Unique

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "tasks.json").read_text())


def written(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("vector", VECTORS["tasks"], ids=lambda vector: json.dumps(vector["envelope"]))
def test_each_vector_gives_its_payload_and_survives_a_round_trip(vector: dict[str, Any]) -> None:
    task = envelope.decode(written(vector["envelope"]))
    assert (task.payload.hex(), task.content_type) == (vector["payload"], vector["content_type"])
    assert envelope.decode(envelope.encode(task)) == task


@pytest.mark.parametrize("refused", VECTORS["refused"], ids=json.dumps)
def test_each_wrong_envelope_is_refused(refused: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        envelope.decode(written(refused))


@pytest.mark.parametrize("vector", VECTORS["identities"], ids=lambda vector: json.dumps(vector["envelope"]))
def test_the_name_that_unique_makes_is_the_vectors(vector: dict[str, Any]) -> None:
    assert envelope.decode(written(vector["envelope"])).identity(vector["queue"]) == vector["name"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"v":1,"json":' + b"[" * 100_000], ids=repr)
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        envelope.decode(data)


@given(payload=st.binary(max_size=200), content_type=st.sampled_from([JSON, TEXT, "image/png"]))
def test_any_payload_comes_back_byte_for_byte(payload: bytes, content_type: str) -> None:
    task = Task(payload=payload, content_type=content_type)
    assert envelope.decode(envelope.encode(task)) == task


def test_every_field_survives_a_round_trip() -> None:
    task = Task.json(
        [1, {"a": None}],
        tag="t",
        eta=datetime.fromisoformat("2030-01-01T00:00:00.000001+09:00"),
        expires=timedelta(hours=1),
        retry=RetryPolicy(max_attempts=3, max_retry_duration=60),
        dispatch_deadline=timedelta(seconds=30),
        headers={"X-Trace": "1"},
        unique=Unique(period=timedelta(minutes=1), key="k"),
    )
    again = envelope.decode(envelope.encode(task))
    assert (again.eta, again.retry, again.headers, again.value()) == (task.eta, task.retry, task.headers, task.value())
    assert (again.expires, again.dispatch_deadline, again.unique) == (3600, 30, Unique(period=60, key="k"))
