from pathlib import Path

import pytest

from emulator import google


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with java and an SDK without emulators."""
    for name in ("gcloud", "java"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(google, "_sdk_roots", lambda: iter([tmp_path]))
    return tmp_path


@pytest.mark.parametrize("flavour", google.FLAVOURS)
def test_a_missing_emulator_is_named_with_the_command_that_installs_it(sdk: Path, flavour: google.Flavour) -> None:
    component = "cloud-firestore-emulator" if flavour == "firestore" else "cloud-datastore-emulator"
    with pytest.raises(google.Missing, match=f"gcloud components install {component}"):
        google.datastore(flavour)
    with pytest.raises(google.Missing, match="apt-get install google-cloud-cli-pubsub-emulator"):
        google.pubsub()


def test_a_missing_java_is_named_with_the_command_that_installs_it(sdk: Path) -> None:
    (sdk / "bin/java").unlink()
    with pytest.raises(google.Missing, match="apt-get install default-jre-headless"):
        google.pubsub()


def test_the_jar_of_the_sdk_is_run_on_the_port_given(sdk: Path) -> None:
    jar = sdk / "platform/pubsub-emulator/lib/cloud-pubsub-emulator-0.8.20-all.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    command = google.pubsub().command(4321)
    assert [str(sdk / "bin/java"), "-jar", str(jar)] == list(command[:3])
    assert "--port=4321" in command
