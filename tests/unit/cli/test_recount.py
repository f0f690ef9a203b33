import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tally import config, embedded
from tally.cli import main
from tally.ports import Backend, Received, Upsert, read
from tally.votes import batch, decoder, keys, ledger, verdict
from tally.votes.ledger import Partition
from tally.votes.polls import to_entity
from tests.unit.votes.pipeline import poll, votes

POLL = poll(partitions=4)
AT = 1_900_000_000_000_000
VOTES = votes(POLL, range(50), AT)
BALLOT = VOTES[7].ballot.hex()
Invoke = Callable[..., Result]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Give the settings of an embedded file that holds a poll with 50 ballots."""
    environ = {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path / "state")}
    work(environ, fill)
    return environ


@pytest.fixture
def invoke(environ: dict[str, str]) -> Invoke:
    return lambda *arguments, **more: CliRunner().invoke(main, list(map(str, arguments)), env={**environ, **more})


def work(environ: dict[str, str], job: Callable[[Backend], object]) -> None:
    async def main() -> None:
        backend = await embedded.open(config.load(environ))
        try:
            await job(backend)  # type: ignore[misc]  # an async function
        finally:
            await backend.close()

    asyncio.run(main())


async def fill(backend: Backend) -> None:
    await backend.prepare()
    await backend.store.commit([Upsert(to_entity(POLL))])
    (columns,) = decoder.decode([Received("", "", AT, batch.encode(VOTES), {})]).columns
    _, records = verdict.judge(POLL, columns, columns.accepted_at)
    partition = verdict.partitions(records, POLL.partitions)
    for number in range(POLL.partitions):
        plan = ledger.plan(Partition(), records[partition == number], "keep")
        await backend.store.commit(plan.writes(keys.shard(POLL.id, number), 0))


async def spoil(backend: Backend) -> None:
    """Let a shard say one ballot more than its segments hold."""
    key = keys.shard(POLL.id, 2)
    found, _ = await read(backend.store, [key])
    shard = ledger.parse_shard(found[key])
    await backend.store.commit([Upsert(ledger.shard_entity(key, replace(shard, ballots=shard.ballots + 1)))])


def test_a_recount_prints_the_totals_and_what_certifies_them(invoke: Invoke) -> None:
    told = invoke("recount", "p")
    assert told.exit_code == 0, told.output
    for words in ("red", "blue", "25", "total", "50", "sha256 ", "root "):
        assert words in told.stdout
    made = json.loads(invoke("recount", "p", "--json").stdout)
    assert made["counts"] == {"red": 25, "blue": 25}
    assert made["sha256"] in told.stdout
    assert made["root"] in told.stdout


def test_a_terminal_shows_how_far_a_recount_is(invoke: Invoke) -> None:
    told = invoke("recount", "p", "--json", FORCE_COLOR="1", COLUMNS="80")
    assert "partitions" in told.stderr
    assert "100%" in told.stderr
    assert json.loads(told.stdout)["ballots"] == 50


def test_a_ledger_that_contradicts_itself_is_told_and_exits_1(environ: dict[str, str], invoke: Invoke) -> None:
    work(environ, spoil)
    told = invoke("recount", "p", "--json")
    assert told.exit_code == 1
    assert "differs: partition 2: the shard says" in told.stderr
    assert json.loads(told.stdout)["ballots"] == 50


def test_a_poll_that_is_not_there_is_one_line(invoke: Invoke) -> None:
    told = invoke("recount", "nobody")
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.strip() == "Error: no poll 'nobody' (poll-not-found)"


@pytest.mark.parametrize("name", ["poll.jsonl", "poll.csv"])
def test_an_export_verifies_and_a_changed_one_does_not(invoke: Invoke, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    made = invoke("recount", "p", "--json", "--export", file)
    sound = invoke("verify", file, "--json")
    assert (sound.exit_code, sound.stderr) == (0, "")
    assert json.loads(sound.stdout) == json.loads(made.stdout)
    *_, last = file.read_text().splitlines()
    swapped = last.replace("red", "BLUE").replace("blue", "red").replace("BLUE", "blue")
    file.write_text(file.read_text().replace(last, swapped))
    told = invoke("verify", file)
    assert told.exit_code == 1
    for differing in ("counts", "sha256", "root"):
        assert f"differs: {differing}: the file says" in told.stderr
    assert "differs: ballots" not in told.stderr


def test_an_export_without_its_last_line_does_not_verify(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "poll.jsonl"
    invoke("recount", "p", "--export", file)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    told = invoke("verify", file)
    assert told.exit_code == 1
    assert "differs: ballots: the file says 50, it is 49" in told.stderr


def test_an_export_that_cannot_be_written_or_read_is_one_line(invoke: Invoke, tmp_path: Path) -> None:
    told = invoke("recount", "p", "--export", tmp_path / "no" / "such.csv")
    assert told.exit_code == 1
    assert "such.csv cannot be written: No such file or directory" in told.stderr
    (tmp_path / "other.csv").write_text("x")
    told = invoke("verify", tmp_path / "other.csv")
    assert told.exit_code == 1
    assert told.stderr.count("\n") == 1


def test_a_receipt_proves_that_a_ballot_is_under_the_certificates_root(invoke: Invoke, tmp_path: Path) -> None:
    root = json.loads(invoke("recount", "p", "--json").stdout)["root"]
    made = invoke("receipt", "p", "--ballot", BALLOT)
    assert json.loads(made.stdout)["option"] == VOTES[7].option
    file = tmp_path / "receipt.json"
    file.write_text(made.stdout)
    for given in (root, root.upper()):
        checked = invoke("receipt", "--check", file, "--root", given)
        assert (checked.exit_code, checked.stderr) == (0, "")
        assert f"ballot {BALLOT} is in the ledger with root {root}" in checked.stdout
    assert "the root was not compared" in invoke("receipt", "--check", file).stderr


@pytest.mark.parametrize(
    ("change", "root", "code"),
    [
        ({}, "0" * 64, "receipt-of-another-root"),
        ({"accepted_at": AT}, "", "receipt-broken"),
        ({"root": "0" * 64}, "", "receipt-broken"),
        ({"path": "none"}, "", "invalid-input"),
    ],
)
def test_a_receipt_that_proves_nothing_is_refused(
    invoke: Invoke, tmp_path: Path, change: dict[str, object], root: str, code: str
) -> None:
    file = tmp_path / "receipt.json"
    made = json.loads(invoke("receipt", "p", "--ballot", BALLOT).stdout)
    file.write_text(json.dumps({**made, **change}))
    told = invoke("receipt", "--check", file, *(("--root", root) if root else ()))
    assert (told.exit_code, told.stdout) == (1, "")
    assert code in told.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("p",), 2, "give a poll and --ballot, or --check FILE"),
        (("p", "--ballot", "7"), 1, "ballot '7': want 32 hexadecimal digits"),
        (("p", "--ballot", "x" * 32), 1, "want 32 hexadecimal digits"),
        (("p", "--ballot", "0" * 32), 1, "has no ballot"),
    ],
)
def test_a_receipt_of_no_ballot_is_refused(
    invoke: Invoke, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    told = invoke("receipt", *arguments)
    assert told.exit_code == exit_code
    assert words in told.stderr
