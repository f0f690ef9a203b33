"""tests/vectors.json states messages, records and certificates for other languages: ours must be the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tally.votes import batch, certificate
from tally.votes.batch import Vote
from tally.votes.records import Records, pack, ranks, unpack

VECTORS: dict[str, Any] = json.loads(Path("tests/vectors.json").read_text(encoding="utf-8"))


def note(vector: dict[str, Any]) -> str:
    return str(vector["note"])


def columns(rows: list[dict[str, Any]]) -> Records:
    return Records(
        np.array([int(row["ballot"][:16], 16) for row in rows], np.uint64),
        np.array([int(row["ballot"][16:], 16) for row in rows], np.uint64),
        ranks(np.array([row["accepted_at"] for row in rows], np.uint64), np.array([row["option"] for row in rows])),
    )


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=note)
def test_votes_make_the_message(vector: dict[str, Any]) -> None:
    votes = [
        Vote(vote["poll"], vote["option"], bytes.fromhex(vote["ballot"]), vote["accepted_at"])
        for vote in vector["votes"]
    ]
    assert batch.encode(votes).decode() == vector["data"]


@pytest.mark.parametrize("vector", VECTORS["records"], ids=note)
def test_a_record_is_packed_and_read_back(vector: dict[str, Any]) -> None:
    packed = pack(columns([vector]))
    assert packed.hex() == vector["packed"]
    back = unpack(packed)
    assert (back.options.tolist(), back.accepted_at.tolist()) == ([vector["option"]], [vector["accepted_at"]])


@pytest.mark.parametrize("vector", VECTORS["certificates"], ids=note)
def test_records_make_the_certificate_and_its_receipts(vector: dict[str, Any]) -> None:
    rows = sorted(vector["records"], key=lambda row: str(row["ballot"]))
    made = certificate.certify(vector["poll"], vector["options"], columns(rows))
    assert (made.sha256, made.root) == (vector["sha256"], vector["root"])
    for row, path in zip(rows, vector["paths"], strict=True):
        ballot = bytes.fromhex(row["ballot"])
        proof = certificate.receipt(vector["poll"], vector["options"], columns(rows), ballot)
        assert list(proof.path) == path
        assert certificate.holds(proof)
