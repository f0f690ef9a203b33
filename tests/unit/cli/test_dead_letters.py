import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tally import config, embedded
from tally.cli import main
from tally.ports import Outgoing, Received
from tally.votes import dead_letter
from tally.votes.batch import Vote, encode
from tests.unit.votes.pipeline import ballot

AT = 1_900_000_000_000_000
Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run `tally dead-letters …` on an embedded file with three letters."""
    monkeypatch.setattr("tally.votes.letterbox.QUIET_SECONDS", 0.05)
    monkeypatch.setattr("tally.embedded.messages.PULL_SECONDS", 0.05)
    environ = {"TALLY_BACKEND": "embedded", "TALLY_STATE": str(tmp_path)}
    asyncio.run(_fill(environ))
    return lambda *arguments: CliRunner().invoke(main, ["dead-letters", *arguments], env=environ)


async def _fill(environ: dict[str, str]) -> None:
    settings = config.load(environ)
    backend = await embedded.open(settings)
    await backend.prepare()
    letters = [_refused("lunch", "poll-closed", 30), _refused("cake", "unknown-option", 1)]
    letters.append(dead_letter.undecodable(Received("a", "m", AT, b"junk", {}), "undecodable", b"junk"))
    await backend.publisher.publish(settings.dead_letter_topic, letters)
    await backend.close()


def _refused(poll: str, reason: str, count: int) -> Outgoing:
    votes = [Vote(poll, "red", ballot(poll, number), AT + number) for number in range(count)]
    return dead_letter.refused("m", AT, reason, encode(votes))


def test_list_prints_a_line_a_letter_and_the_reasons(invoke: Invoke) -> None:
    result = invoke("list")
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) == 4
    last = result.output.splitlines()[-1]
    assert last == "3 dead letters with 31 votes (1 poll-closed, 1 unknown-option, 1 undecodable)"
    assert invoke("list", "--poll", "cake").output.endswith("1 dead letter with 1 vote (1 unknown-option)\n")
    assert invoke("list", "--reason", "none").output == "0 dead letters with 0 votes\n"


def test_list_as_json_names_the_instants_and_what_can_be_replayed(invoke: Invoke) -> None:
    found = json.loads(invoke("list", "--json").output)
    assert [(each["reason"], each["polls"], each["votes"], each["replayable"]) for each in found] == [
        ("poll-closed", ["lunch"], 30, True),
        ("unknown-option", ["cake"], 1, True),
        ("undecodable", [], 0, False),
    ]
    assert found[0]["published_at"] == "2030-03-17T17:46:40.000+00:00"


def test_show_prints_the_first_votes_or_the_bytes(invoke: Invoke) -> None:
    ids = [each["id"] for each in json.loads(invoke("list", "--json").output)]
    shown = invoke("show", ids[0])
    assert shown.output.count("  lunch  red  ballot ") == 20
    assert "… 10 more" in shown.output
    assert len(json.loads(invoke("show", ids[0], "--json").output)["ballots"]) == 30
    assert invoke("show", ids[2]).output.endswith("junk\n")
    missing = invoke("show", "nobody")
    assert missing.exit_code == 1
    assert "nobody" in missing.output


@pytest.mark.parametrize("verb", ["replay", "drop"])
def test_a_change_needs_a_filter_or_all_but_not_both(invoke: Invoke, verb: str) -> None:
    for arguments in ([], ["--all", "--poll", "lunch"]):
        result = invoke(verb, *arguments)
        assert result.exit_code == 2
        assert "--all" in result.output


def test_a_dry_run_says_what_would_be_done_and_does_nothing(invoke: Invoke) -> None:
    result = invoke("replay", "--all", "--dry-run")
    assert result.output.splitlines() == [
        "2 dead letters with 31 votes would be replayed (1 poll-closed, 1 unknown-option)",
        "1 cannot be replayed: they could not be decoded",
    ]
    assert invoke("list").output.splitlines()[-1].startswith("3 dead letters")


def test_a_replay_asks_first_and_takes_only_what_is_meant(invoke: Invoke) -> None:
    refused = invoke("replay", "--poll", "lunch")
    assert refused.exit_code == 1
    assert "Replay every dead letter with poll 'lunch'?" in refused.output
    result = invoke("replay", "--poll", "lunch", "--yes", "--json")
    assert json.loads(result.stdout) == {
        "dry_run": False,
        "letters": 1,
        "votes": 30,
        "others": 2,
        "unsound": 0,
        "again": 0,
        "more": False,
        "reasons": {"poll-closed": 1},
    }
    assert invoke("list").output.splitlines()[-1].startswith("2 dead letters")


@pytest.mark.parametrize(("verb", "done"), [("replay", "replayed"), ("drop", "dropped")])
def test_nothing_is_asked_when_there_is_nothing_to_change(invoke: Invoke, verb: str, done: str) -> None:
    result = invoke(verb, "--reason", "no-such-reason")
    assert (result.exit_code, result.output) == (0, f"0 dead letters with 0 votes {done}\n")


def test_a_drop_takes_what_cannot_be_replayed(invoke: Invoke) -> None:
    result = invoke("drop", "--reason", "undecodable", "--yes")
    assert result.output.splitlines()[0] == "1 dead letter with 0 votes dropped (1 undecodable)"
    assert invoke("list").output.splitlines()[-1].startswith("2 dead letters with 31 votes")
