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
    assert (proof.poll, proof.option) == ("poll", OPTIONS[proof.option_number])
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
    rows = made({(1, 1): (5, 0), (0, 1): (5, 0), (1, 0): (5, 0)})
    with pytest.raises(NotFound, match=f"^poll 'poll' has no ballot {'0' * 32}$") as caught:
        certificate.receipt("poll", OPTIONS, rows, bytes(16))
    assert caught.value.code == "ballot-not-found"


def test_every_ballot_of_a_tree_of_any_shape_has_a_receipt_that_holds() -> None:
    for size in range(1, 34):
        words = [number << 57 | number for number in range(size)]  # each differs in its first byte and its last
        rows = made({(0, word): (5, number % 3) for number, word in enumerate(words)})
        for number, word in enumerate(words):
            proof = certificate.receipt("poll", OPTIONS, rows, word.to_bytes(16, "big"))
            assert (proof.index, proof.size) == (number, size)
            assert certificate.holds(proof)


@pytest.mark.parametrize(
    "change",
    [{"ballot": "x" * 32}, {"ballot": "0" * 30}, {"path": ("x",)}, {"accepted_at": -1}, {"accepted_at": 2**54}],
)
def test_a_receipt_of_nonsense_does_not_hold(change: dict[str, object]) -> None:
    proof = certificate.receipt("poll", OPTIONS, made({(0, 0): (5, 0)}), bytes(16))
    assert not certificate.holds(msgspec.structs.replace(proof, **change))


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
        ('"ballot":"000000000000000a', '"ballot":"000000000000000A', 4),
        ('"ballot":"0', '"ballot":"_', 2),
        ('{"ballot"', '["ballot"', 2),
        ('{"ballot"', '{"x":1,"ballot"', 2),
    ],
)
def test_a_damaged_export_names_the_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    path = tmp_path / "poll.jsonl"
    rows = made({(1, 1): (5, 0), (2, 1): (6, 1), (10, 1): (6, 1)})
    export.write(path, certificate.certify("poll", OPTIONS, rows), rows)
    first, rest = path.read_text().split("\n", 1)
    path.write_text(first + "\n" + rest.replace(old, new, 1))
    with pytest.raises(InvalidInput, match=f"line {line}"):
        export.read(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"ballot,choice,accepted_at\n", "line 1: want the columns"),
        (b"", "line 1: want the columns"),
        (b"ballot,option,accepted_at\n0,red\n", "line 2"),
        (b"ballot,option,accepted_at\n" + b"0" * 32 + b",red,soon\n", "line 2"),
        (b"ballot,option,accepted_at\n" + b"0" * 32 + b",\xff,5\n", "line 2: option"),
        (b"ballot,option,accepted_at\n" + b"0" * 200_000 + b",red,5\n", "line 2"),
    ],
)
def test_a_damaged_csv_export_names_the_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "poll.csv"
    export.write(path, certificate.certify("poll", OPTIONS, made({})), made({}))
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        export.read(path)


def test_a_csv_export_needs_its_certificate_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "poll.csv"
    export.write(path, certificate.certify("poll", OPTIONS, made({})), made({}))
    export.beside(path).unlink()
    with pytest.raises(InvalidInput, match=r"beside it, in poll\.csv\.json"):
        export.read(path)


def _stated(**changes: object) -> bytes:
    issued = certificate.certify("poll", OPTIONS, made({}))
    return msgspec.json.encode({**msgspec.to_builtins(issued), **changes})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"poll":"\xff"}',
        _stated(poll="p" * 65_536),
        _stated(options=[f"o{number}" for number in range(1_025)]),
        _stated(options=["o" * 65_536]),
    ],
)
def test_a_file_without_a_possible_certificate_is_no_export(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "poll.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="no certificate"):
        export.read(path)


def test_a_record_of_an_option_that_the_poll_has_not_is_not_certified() -> None:
    with pytest.raises(InvalidInput, match=r"^a record has option number 2, the poll has 2 options$"):
        certificate.certify("poll", OPTIONS[:2], made({(1, 1): (5, 2)}))
