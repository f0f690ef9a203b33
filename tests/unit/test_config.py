"""Settings: read once, a wrong value names its variable."""

import pytest

from tally import config
from tally.errors import ConfigError


def test_the_defaults_are_for_local_work() -> None:
    settings = config.load({})
    assert settings.backend == "embedded"
    assert settings.ballot_keys == settings.state / "ballot-keys"


def test_the_emulators_are_taken_where_their_hosts_are_set() -> None:
    hosts = {"PUBSUB_EMULATOR_HOST": "127.0.0.1:8085", "DATASTORE_EMULATOR_HOST": "[::1]:8081"}
    assert config.load(hosts).backend == "emulator"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TALLY_BACKEND", "gcp"),
        ("TALLY_BACKEND", "emulator"),
        ("TALLY_DURABILITY", "none"),
        ("TALLY_LEDGER_MEMORY_BYTES", "0"),
        ("TALLY_LEDGER_MEMORY_BYTES", "-1"),
        ("TALLY_LEDGER_MEMORY_BYTES", "256MB"),
        ("TALLY_LEDGER_MEMORY_BYTES", "1e9"),
        ("TALLY_LEDGER_MEMORY_BYTES", "9" * 16),
        ("TALLY_STREAMS", "0"),
        ("TALLY_STREAMS", "65"),
        ("TALLY_STREAMS", "two"),
        ("TALLY_STREAM", "-1"),
        ("TALLY_STREAM", "64"),
        ("TALLY_RUN_TASK_IAM", "yes"),
        ("PUBSUB_EMULATOR_HOST", "http://127.0.0.1:8085"),
        ("DATASTORE_EMULATOR_HOST", " 127.0.0.1:8081"),
        ("CLOUD_TASKS_EMULATOR_HOST", "127.0.0.1"),
    ],
)
def test_a_wrong_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config.load({name: value})


@pytest.mark.parametrize("where", ["K_SERVICE", "CLOUD_RUN_JOB", "CLOUD_RUN_WORKER_POOL"])
def test_a_backend_is_not_guessed_on_cloud_run(where: str) -> None:
    with pytest.raises(ConfigError, match="TALLY_BACKEND=cloud"):
        config.load({where: "tally"})


def test_the_cloud_is_not_mixed_with_an_emulator() -> None:
    with pytest.raises(ConfigError, match="unset"):
        config.load({"TALLY_BACKEND": "cloud", "PUBSUB_EMULATOR_HOST": "127.0.0.1:8085"})


@pytest.mark.parametrize("given", [{}, {"TALLY_PROJECT": ""}])
def test_the_cloud_wants_its_project_and_local_work_has_one(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="TALLY_PROJECT is not set"):
        config.load({"TALLY_BACKEND": "cloud", **given})
    emulators = {"PUBSUB_EMULATOR_HOST": "127.0.0.1:1", "DATASTORE_EMULATOR_HOST": "127.0.0.1:2"}
    assert config.load(given).project == config.load({**emulators, **given}).project == "tally-local"
    assert config.load({"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p"}).project == "p"


def test_each_variable_is_named_once_and_said() -> None:
    names = [variable.name for variable in config.VARIABLES]
    assert len(names) == len(set(names))
    assert all(variable.meaning for variable in config.VARIABLES)


def test_there_are_so_many_streams_and_no_more() -> None:
    settings = config.load({"TALLY_STREAMS": "64", "TALLY_STREAM": "63"})
    assert (settings.streams, settings.stream, len(settings.vote_channels)) == (64, 63, 64)


def test_stream_0_has_the_bare_names_and_the_others_a_number() -> None:
    settings = config.load({"TALLY_TOPIC": "t", "TALLY_SUBSCRIPTION": "s", "TALLY_STREAMS": "2", "TALLY_STREAM": "4"})
    assert settings.vote_channels == (("t", "s"), ("t-1", "s-1"))
    assert settings.channel(settings.stream) == ("t-4", "s-4")
    assert settings.channels == (*settings.vote_channels, ("votes-dead", "votes-dead"))
