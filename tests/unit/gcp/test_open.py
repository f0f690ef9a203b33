"""What opens a backend of Google's, and what never does."""

import os
from dataclasses import replace

import pytest
from google.pubsub_v1 import types
from grpc import StatusCode

from tally import config, gcp, limits
from tally.config import Settings
from tally.errors import ConfigError, Unavailable
from tally.gcp import clients
from tally.ports import Backend
from tests.conftest import NO_CREDENTIALS
from tests.unit.gcp.conftest import FakeGoogle

HOSTS = {"PUBSUB_EMULATOR_HOST": "127.0.0.1:1", "DATASTORE_EMULATOR_HOST": "127.0.0.1:2"}


@pytest.mark.parametrize(
    "settings",
    [replace(config.load(HOSTS), pubsub_emulator=""), replace(config.load(HOSTS), datastore_emulator="")],
    ids=["pubsub", "datastore"],
)
async def test_an_emulators_settings_without_a_host_never_open_the_cloud(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="PUBSUB_EMULATOR_HOST and DATASTORE_EMULATOR_HOST"):
        await gcp.open(settings)


async def test_the_clouds_settings_with_an_emulators_host_do_not_open() -> None:
    settings = replace(config.load(HOSTS), backend="cloud")
    with pytest.raises(ConfigError, match="unset one or the other"):
        await gcp.open(settings)


def test_a_channel_takes_messages_up_to_its_limit_and_no_larger() -> None:
    """More than any lookup, Pull or commit that we let be asked for; gRPC's own limit would be 4 MB."""
    options = dict(clients._OPTIONS)
    assert options["grpc.max_receive_message_length"] == options["grpc.max_send_message_length"] == limits.CHANNEL_BYTES
    assert max(limits.PULL_BYTES, limits.LOOKUP_BYTES, limits.COMMIT_BYTES, limits.PUBLISH_BYTES) < limits.CHANNEL_BYTES


@pytest.mark.skipif(bool(os.environ.get("TALLY_TEST_CLOUD")), reason="the cloud's own tests have credentials")
async def test_under_test_the_cloud_opens_no_channel() -> None:
    """The suite's environment, which its child processes inherit, has no credentials to find."""
    assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"] == NO_CREDENTIALS
    backend = await gcp.open(config.load({"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p"}))
    with pytest.raises(Unavailable, match=NO_CREDENTIALS) as caught:
        await backend.store.get([(("Thing", "a"),)])
    assert caught.value.status == "UNAUTHENTICATED"


async def test_nothing_is_prepared_on_the_cloud() -> None:
    await (await gcp.open(config.load({"TALLY_BACKEND": "cloud", "TALLY_PROJECT": "p"}))).prepare()


async def test_preparing_an_emulator_makes_both_topics_and_their_subscriptions(
    google: FakeGoogle, settings: Settings
) -> None:
    backend = await gcp.open(settings)
    await backend.prepare()
    await backend.close()
    assert [method for method, _ in google.calls] == ["CreateTopic", "CreateSubscription"] * 2
    topics = [types.Topic.deserialize(request).name for request in google.requests[::2]]
    subscriptions = [
        types.Subscription.pb(types.Subscription.deserialize(request)) for request in google.requests[1::2]
    ]
    assert topics == ["projects/the-project/topics/votes", "projects/the-project/topics/votes-dead"]
    assert [(each.name.rpartition("/")[2], each.topic) for each in subscriptions] == [
        ("votes", topics[0]),
        ("votes-dead", topics[1]),
    ]
    for each in subscriptions:
        assert each.ack_deadline_seconds == 10
        assert not each.HasField("dead_letter_policy")  # it would take good votes away after an outage
        assert not each.HasField("retry_policy")  # the emulator would keep what was let go of three times
        assert each.message_retention_duration.seconds == 7 * 24 * 3_600
        assert each.HasField("expiration_policy")
        assert not each.expiration_policy.HasField("ttl")


async def test_preparing_what_is_there_already_is_no_error_and_any_other_failure_is(
    google: FakeGoogle, backend: Backend
) -> None:
    google.fail("CreateTopic", StatusCode.ALREADY_EXISTS)
    google.fail("CreateSubscription", StatusCode.ALREADY_EXISTS)
    await backend.prepare()
    google.fail("CreateSubscription", StatusCode.PERMISSION_DENIED)
    with pytest.raises(Unavailable):
        await backend.prepare()


async def test_a_closed_backend_opens_again_at_its_next_call(google: FakeGoogle, settings: Settings) -> None:
    backend = await gcp.open(settings)
    for _ in range(2):
        await backend.store.get([(("Thing", "a"),)])
        await backend.close()
    assert google.count("Lookup") == 2
