from collections.abc import Mapping

import pytest

from tally.environment import examine

EMULATORS = {"PUBSUB_EMULATOR_HOST": "127.0.0.1:1", "DATASTORE_EMULATOR_HOST": "127.0.0.1:2"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        EMULATORS,
        {"TALLY_BACKEND": "embedded"},
        {"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p", "GOOGLE_CLOUD_PROJECT": "p"},
        EMULATORS | {"http_proxy": "http://proxy:3128", "no_proxy": "localhost, 127.0.0.1"},
        EMULATORS | {"http_proxy": "http://proxy:3128", "NO_PROXY": "*"},
        {"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p", "http_proxy": "http://proxy:3128"},
        {"TALLY_EMULATOR_FLAVOUR": "firestore"},
    ],
)
def test_a_whole_set_of_variables_is_ok(environ: Mapping[str, str]) -> None:
    assert [finding.level for finding in examine(environ)] == ["ok"]


@pytest.mark.parametrize(
    ("environ", "says", "mend"),
    [
        (
            EMULATORS | {"PUBSUB_EMULATOR_HOST": "http://127.0.0.1:1/"},
            "not a bare host:port",
            "export PUBSUB_EMULATOR_HOST=127.0.0.1:1",
        ),
        (EMULATORS | {"PUBSUB_EMULATOR_HOST": " [::1]:1"}, "not a bare", "export PUBSUB_EMULATOR_HOST=[::1]:1"),
        (
            EMULATORS | {"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p"},
            "would send calls to an emulator",
            "unset PUBSUB_EMULATOR_HOST DATASTORE_EMULATOR_HOST",
        ),
        (
            {"PUBSUB_EMULATOR_HOST": "127.0.0.1:1"},
            "DATASTORE_EMULATOR_HOST is not set, so `auto` takes the embedded file",
            'eval "$(python -m emulator up)"',
        ),
        (
            {"TALLY_BACKEND": "cloud"},
            "TALLY_PROJECT is not set",
            "export TALLY_PROJECT=$(gcloud config get-value project)",
        ),
        (
            {"TALLY_BACKEND": "cloud", "GOOGLE_CLOUD_PROJECT": "p"},
            "TALLY_PROJECT is not set",
            "export TALLY_PROJECT=p",
        ),
        ({"TALLY_BACKEND": "emulator"}, "TALLY_BACKEND=emulator needs", "unset TALLY_BACKEND"),
        ({"K_SERVICE": "public"}, "on Cloud Run set TALLY_BACKEND=cloud", "unset TALLY_BACKEND"),
        ({"TALLY_DURABILITY": "none"}, "want power-loss or process-crash", "unset TALLY_DURABILITY"),
    ],
)
def test_what_cannot_work_is_wrong_and_has_a_command(environ: Mapping[str, str], says: str, mend: str) -> None:
    (finding,) = [finding for finding in examine(environ) if finding.level != "ok"]
    assert finding.level == "wrong"
    assert says in finding.says
    assert finding.mend == mend


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        (EMULATORS | {"HTTP_PROXY": "http://proxy:3128", "no_proxy": "a.com"}, "no_proxy does not name 127.0.0.1"),
        ({"TALLY_SUBSCRIPTON": "x"}, "is TALLY_SUBSCRIPTION meant?"),
        (EMULATORS | {"TALLY_BACKEND": "embedded"}, "is not used"),
        (
            {"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p", "GOOGLE_CLOUD_PROJECT": "other"},
            "GOOGLE_CLOUD_PROJECT='other'",
        ),
    ],
)
def test_what_works_and_may_surprise_is_a_note(environ: Mapping[str, str], says: str) -> None:
    findings = examine(environ)
    assert [finding.level for finding in findings] == ["ok", "note"]
    assert says in findings[1].says
    assert findings[1].mend
