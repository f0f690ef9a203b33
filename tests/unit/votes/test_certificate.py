from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import InvalidInput, NotFound
from tally.votes import certificate, export
from tally.votes.records import Records, best
from tests.unit.votes.test_records import records

OPTIONS = ("red", "blü", 'x,"y"')
tables = st.dictionaries(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    st.tuples(st.integers(1, 2**54 - 1), st.integers(0, 2)),
    max_size=40,
)


def made(table: dict[tuple[int, int], tuple[int, int]]) -> Records:
    rows = [(high, low, at * 1024 + option) for (high, low), (at, option) in table.items()]
    return best(records(rows), "keep")


def merkle(leaves: list[bytes]) -> bytes:
    """RFC 9162, section 2.1.1, word by word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\1" + merkle(leaves[:split]) + merkle(leaves[split:])).digest()


@given(tables)
def test_hash_and_root_are_the_documented_ones(table: dict[tuple[int, int], tuple[int, int]]) -> None:
    leaves = [
        high.to_bytes(8, "big") + low.to_bytes(8, "big") + (at * 1024 + option).to_bytes(8, "big")
        for (high, low), (at, option) in sorted(table.items())
    ]
    header = b"tally-certificate/1" + b"\0\4poll" + b"\0\3" + b"\0\3red" + b"\0\4bl\xc3\xbc" + b'\0\5x,"y"'
    issued = certificate.certify("poll", OPTIONS, made(table))
    assert issued.sha256 == sha256(header + b"".join(leaves)).hexdigest()
    assert issued.root == merkle(leaves).hex()
    assert issued.ballots == sum(issued.counts.values()) == len(table)


@given(tables.filter(bool), st.data())
def test_a_receipt_holds_and_any_change_breaks_it(
    table: dict[tuple[int, int], tuple[int, int]], data: st.DataObject
) -> None:
    high, low = data.draw(st.sampled_from(sorted(table)))
    ballot = high.to_bytes(8, "big") + low.to_bytes(8, "big")
    proof = certificate.receipt("poll", OPTIONS, made(table), ballot)
    assert certificate.holds(proof)
    assert (proof.accepted_at, proof.option_number) == table[high, low]
    changes = {
        "accepted_at": proof.accepted_at + 1,
        "option_number": proof.option_number + 1,
        "ballot": f"{(high ^ 1):016x}{low:016x}",
        "root": "0" * 64,
        "index": proof.index + proof.size,
        "path": (*proof.path, "0" * 64),
    }
    for name, value in changes.items():
        assert not certificate.holds(msgspec.structs.replace(proof, **{name: value})), name
    if proof.path:
        assert not certificate.holds(msgspec.structs.replace(proof, path=proof.path[:-1]))


def test_a_ballot_that_is_not_there_has_no_receipt() -> None:
    with pytest.raises(NotFound, match="no ballot"):
        certificate.receipt("poll", OPTIONS, made({(1, 1): (5, 0)}), bytes(16))


@pytest.mark.parametrize("name", ["poll.jsonl", "poll.csv"])
@given(table=tables)
def test_an_export_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, name: str, table: dict[tuple[int, int], tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("export") / name
    issued = certificate.certify("poll", OPTIONS, made(table))
    export.write(path, issued, made(table))
    stated, back = export.read(path)
    assert stated == issued
    assert certificate.certify(stated.poll, stated.options, back) == issued


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"option":"red"', '"option":"green"', 2),
        ('"accepted_at":5', '"accepted_at":0', 2),
        ('"ballot":"0', '"ballot":"g', 2),
        ('"ballot":"00000000000000020000000000000001"', '"ballot":"00000000000000010000000000000001"', 3),
        ('{"ballot"', '["ballot"', 2),
        ('{"ballot"', '{"x":1,"ballot"', 2),
    ],
)
def test_a_damaged_export_names_the_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    path = tmp_path / "poll.jsonl"
    rows = made({(1, 1): (5, 0), (2, 1): (6, 1)})
    export.write(path, certificate.certify("poll", OPTIONS, rows), rows)
    first, rest = path.read_text().split("\n", 1)
    path.write_text(first + "\n" + rest.replace(old, new, 1))
    with pytest.raises(InvalidInput, match=f"line {line}"):
        export.read(path)
