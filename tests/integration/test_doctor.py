"""`tally doctor` on a set-up as users have it: a fresh one, one that works, one that is wrong."""

import json
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

from tally import bootstrap, config
from tally.cli import main
from tally.cli.console import run
from tally.ports import Outgoing
from tests.conftest import Hosts


@pytest.fixture(params=["embedded", "emulator"])
def environ(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    environ = {
        "TALLY_BACKEND": str(request.param),
        "TALLY_PROJECT": f"doctor-{uuid4().hex[:12]}",
        "TALLY_STATE": str(tmp_path),
    }
    if request.param == "emulator":
        hosts: Hosts = request.getfixturevalue("emulators")
        environ |= hosts("firestore-mode")
    return environ


def _doctor(environ: Mapping[str, str], *arguments: str) -> tuple[int, list[dict[str, str]]]:
    result = CliRunner().invoke(main, ["doctor", "--json", *arguments], env=environ)
    return result.exit_code, json.loads(result.stdout)


async def _prepare(environ: Mapping[str, str]) -> None:
    backend = await bootstrap.open_backend(config.load(environ))
    await backend.prepare()
    await backend.close()


def test_a_fresh_and_a_working_set_up_have_nothing_wrong(environ: dict[str, str]) -> None:
    code, findings = _doctor(environ)
    assert code == 0, findings
    run(_prepare(environ))
    code, findings = _doctor(environ)
    assert code == 0, findings
    assert {finding["level"] for finding in findings} <= {"ok", "note"}
    assert {"settings", "ballot-keys", "subscription", "guard", "clock"} <= {finding["check"] for finding in findings}
    assert "guard" not in {finding["check"] for finding in _doctor(environ, "--read-only")[1]}


def test_a_subscription_of_another_topic_is_found_with_its_command(environ: dict[str, str]) -> None:
    run(_prepare(environ))
    code, findings = _doctor(environ | {"TALLY_TOPIC": "votes-dead"})
    assert code == 1
    (wrong,) = [finding for finding in findings if finding["level"] == "wrong"]
    assert wrong["check"] == "subscription"
    assert wrong["mend"]


def test_votes_in_a_stream_that_no_function_names_are_found_with_the_command_that_counts_them(
    environ: dict[str, str],
) -> None:
    async def leave_a_message() -> None:
        settings = config.load(environ | {"TALLY_STREAMS": "2"})
        async with bootstrap.opened(settings) as backend:
            await backend.prepare()
            await backend.publisher.publish(settings.channel(1).topic, [Outgoing(b"left", {})])

    run(leave_a_message())
    code, findings = _doctor(environ)
    (wrong,) = [finding for finding in findings if finding["level"] == "wrong"]
    assert (code, wrong["check"], wrong["mend"]) == (1, "streams", "tally worker --stream 1 --until-empty")
    assert _doctor(environ | {"TALLY_STREAMS": "2"})[0] == 0


def test_hosts_that_do_not_answer_end_the_round(tmp_path: Path) -> None:
    hosts = {"PUBSUB_EMULATOR_HOST": "127.0.0.1:1", "DATASTORE_EMULATOR_HOST": "127.0.0.1:1"}
    code, findings = _doctor(hosts | {"TALLY_BACKEND": "emulator", "TALLY_STATE": str(tmp_path)})
    assert code == 1
    assert [finding["check"] for finding in findings if finding["level"] == "wrong"] == ["hosts", "hosts"]


def test_missing_credentials_are_found_without_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("DATASTORE_EMULATOR_HOST", raising=False)
    (tmp_path / "1").write_text("ab" * 32)
    environ = {"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p", "TALLY_BALLOT_KEYS": str(tmp_path)}
    code, findings = _doctor(environ)
    assert code == 1
    (wrong,) = [finding for finding in findings if finding["level"] == "wrong"]
    assert (wrong["check"], wrong["mend"]) == ("credentials", "gcloud auth application-default login")
